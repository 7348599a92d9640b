"""Java's regular expressions in Python, so that a list of topics matches the same names.

`patterns` translates expressions, and `backtracking` rejects those that could run for an unbounded
time. `linear` matches expressions that clients send, in linear time.
"""
