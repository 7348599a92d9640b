"""How commands speak: lines, tables, bars, log lines, and what ends them.

`output` first; `progress`, `mirror_screen`,
`events` and `failures` show a running mirror, `signals` end it;
`status/` shows flows when somebody asks.
"""
