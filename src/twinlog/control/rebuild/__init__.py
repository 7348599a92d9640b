"""Rebuilds the offset map, from the records of both sides, where it was lost.

`map_rebuild` is the command; `partition` one partition of it.
"""
