"""The command line: parses arguments, prints results and returns exit codes, without other logic.

`main` finds the command. `commands` contains the commands, `options` their shared options, and
`terminal` their output.
"""
