"""One file for each command of `twinlog`; `cutover` and `steer` have the commands of a family.

A command reads its options (`cli.options`), calls one function of a lower layer, and shows the
result (`cli.terminal`). `cli.main` imports only the command that is called.
"""
