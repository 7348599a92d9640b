"""The command line: parses arguments, prints lines and returns exit codes. It has no other logic.

`main` finds the command. `commands` contains the commands, `options` their shared options, and
`terminal` their output.
"""
