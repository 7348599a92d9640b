"""Positions of consumer groups on the target: checkpoints, and offsets that are set.

`counterparts` says where offsets of the source lie on the target, `translation_cache` keeps what
changed; `checkpoints` is the duty that writes `checkpoint_rows` and sets offsets of consumer groups
(`group_sync`) and share groups, by the rules of `mirror.map.checkpoints`. `no_counterpart`,
`group_rights` and `keyed_groups` say which groups are left out, and why.
"""
