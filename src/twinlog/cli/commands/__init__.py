"""One file for each command of `twinlog`, or a folder for a group of them: `steer` what runs,
`cutover` and drill, `compare` both sides, consumer `groups`, `rest` with its tokens.

A command reads its options (`cli.options`), calls one function below, and shows what it answers
(`cli.terminal`). `cli.main` finds them by name, so that only the one that runs is loaded.
"""
