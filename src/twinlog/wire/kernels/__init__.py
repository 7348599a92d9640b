"""The loops over records that Python is too slow for: compiled, with a twin in Python.

Read `shapes` (what goes in and comes out), `twin` (what each function does), then `kernels.c` (the
same, fast). `chosen` says which of the two this process has; `library` loads the compiled one,
which `hatch_build.py`, at the top of the repository, makes when Twinlog is installed.
"""
