"""The command line: arguments in, lines and exit codes out, all else is done below.

`main` finds the command; `commands` has them, `options` what they share, `terminal` how they speak.
"""
