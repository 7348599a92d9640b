"""The commands of `twinlog`, one per file, except that `cutover` has `switchover`, `failover` and
`failback`, and `steer` has `flow` and `topic`.

A command reads its options (`cli.options`), calls one function of a lower layer, and shows the
result (`cli.terminal`). `cli.main` imports only the command that is called.
"""
