"""Output of commands: lines, tables, progress bars, log lines, and signals that end them.

Read `output` first. `progress` shows a running mirror and its failures, `signals` end it, and
`status` shows flows for `twinlog status`.
"""
