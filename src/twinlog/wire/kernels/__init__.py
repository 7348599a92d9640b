"""Loops over records that are too slow in Python, as compiled functions with a Python equivalent.

Read `shapes` (inputs and outputs), `twin` (the functions in Python), then `kernels.c` (the same
functions in C). `library` loads the compiled functions, which `hatch_build.py` in the root of the
repository builds when Twinlog is installed. `chosen` selects one of the two for this process.
"""
