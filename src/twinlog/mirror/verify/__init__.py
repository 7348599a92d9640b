"""Compares the logs of a target partition and its source partition, paired by the offset map.

Read `difference` (the results), `matching` (which records belong together) and `side` (one log
during the walk), then `walk` (both logs; equal batches are compared whole).
"""
