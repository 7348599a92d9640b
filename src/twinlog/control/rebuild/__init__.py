"""Rebuilds a lost offset map from the records of both sides.

`map_rebuild` is the command; `partition` one partition of it.
"""
