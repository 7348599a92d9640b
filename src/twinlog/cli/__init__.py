"""The command line: arguments in, lines and exit codes out, all else is done below."""
