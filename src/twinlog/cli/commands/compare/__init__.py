"""Commands that find deviations: `diff` of two clusters, `verify` of their records, `doctor` of a
mirror.
"""
