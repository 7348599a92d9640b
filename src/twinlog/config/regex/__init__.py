"""Java's regular expressions in Python, so that a list of topics selects the same.

`patterns` is what the rest uses; `java_regex` translates, `backtracking` refuses what could run for
ever.
"""
