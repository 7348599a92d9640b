"""The loops over records that are too slow in Python: compiled, with an equivalent in Python.

Read `shapes` (inputs and outputs), `twin` (the functions in Python), then `kernels.c` (the same
functions in C). `library` loads the compiled ones, which `hatch_build.py` in the root of the
repository builds when Twinlog is installed. `chosen` selects one of the two for this process.
"""
