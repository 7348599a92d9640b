"""Output of commands: lines, tables, progress bars, log lines, and signals that end them.

Read `output` first. `progress` and `failures` show a running mirror, `signals` end it, and
`status/` shows flows for `twinlog status`.
"""
