"""One file for each command of `twinlog`, or for each group of them.

A command reads its options (`cli.options`), calls one function below, and shows what it answers
(`cli.terminal`). `cli.main` finds them by name, so that only the one that runs is loaded.
"""
