"""Java's regular expressions in Python, so that a list of topics matches the same names.

Other packages use `patterns`. `java_regex` translates expressions, and `backtracking` rejects those
that could run for an unbounded time.
"""
