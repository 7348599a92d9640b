"""Offsets of consumer groups on the target: checkpoints, and committed offsets.

`counterparts` maps offsets of the source to the target, or says why not, and `translation_cache`
keeps the results. `checkpoints` is the duty that writes `checkpoint_rows` and sets offsets of
consumer groups and share groups (`group_sync`). `left_out` reports which groups are left out, and
why.
"""
