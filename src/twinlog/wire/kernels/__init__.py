"""The loops over records that are too slow in Python: compiled, with an equivalent in Python.

Read `shapes` (inputs and outputs), `twin` (what each function does), then `kernels.c` (the same,
but fast). `chosen` selects one of the two for this process; `library` loads the compiled one, which
`hatch_build.py`, in the root of the repository, builds when Twinlog is installed.
"""
