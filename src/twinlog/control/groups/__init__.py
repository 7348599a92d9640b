"""Offsets of consumer groups on the target: checkpoints, and committed offsets.

`counterparts` maps offsets of the source to the target, or says why not, and `translation_cache`
keeps the results. `checkpoints` is the duty that writes `checkpoint_rows` and sets offsets of
consumer groups (`group_sync`) and share groups, by the rules of `mirror.map.checkpoints`.
`group_rights` and `keyed_groups` report which groups are left out, and why.
"""
