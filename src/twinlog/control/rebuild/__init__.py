"""Rebuilds a lost offset map from the records of source and target.

`map_rebuild` rebuilds the map of a flow, and `partition` that of one partition.
"""
