"""One file for each command of `twinlog`, or a folder for a group of commands: `steer` for running
flows, `cutover` for moves and drills, `compare` for comparisons, `groups` for consumer groups,
`rest` for API tokens.

A command reads its options (`cli.options`), calls one function of a lower layer, and shows the
result (`cli.terminal`). `cli.main` imports only the command that is called.
"""
