"""Commands that say what is not as it should be: `diff` of two clusters, `verify` of their records,
`doctor` of a mirror.
"""
