"""Positions of consumer groups on the target: checkpoints, and offsets that are set.

`counterparts` says where offsets of the source lie on the target, `translation_cache` keeps what
changed; `checkpoints` is the duty that writes it down, as `checkpoint_rows`, `group_sync` and
`share_sync` set it, by the rules of `mirror.map.checkpoints`. On the way back
`opposite_checkpoints` knows what a group has from a sync. `no_counterpart`, `group_rights` and
`keyed_groups` say which groups are left out, and why.
"""
