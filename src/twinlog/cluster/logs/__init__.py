"""Reads offsets, records and producer states of partitions' logs.

`per_leader` queries each leader once for all of its partitions, and prevents one from delaying
others.
"""
