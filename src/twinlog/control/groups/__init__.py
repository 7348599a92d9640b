"""Offsets of consumer groups on the target: checkpoints, and committed offsets.

`counterparts` maps offsets of the source to the target, or gives the reason if an offset has no
counterpart. `translation_cache` keeps the results. `checkpoints` is the duty that writes
`checkpoint_rows` and sets offsets of consumer groups and share groups (`group_sync`). `left_out`
reports groups that would not resume on the target where they stopped on the source, and the
reasons.
"""
