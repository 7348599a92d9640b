"""Output of commands: lines, tables, progress bars and log lines. Also the signals that end them.

Read `output` first. `progress` shows a running mirror and its failures, `signals` handles Ctrl-C
and SIGTERM, and `status` shows flows for `twinlog status`.
"""
