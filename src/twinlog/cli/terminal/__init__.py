"""How commands speak: lines, tables, bars, log lines, and what ends them.

Read `output` first. `progress` and `failures` show a running mirror, `signals` end it, and
`status/` shows flows for `twinlog status`.
"""
