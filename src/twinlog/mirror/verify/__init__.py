"""Compares the logs of a target partition and its source partition, paired by the offset map.

Read `difference` (the results) with `tally` (counts by day), `pairs` (record positions by the map)
and `side` (one log during the walk), then `walk` (both logs; equal batches are compared whole),
with `realignment` for differences.
"""
