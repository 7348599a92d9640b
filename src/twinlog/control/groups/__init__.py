"""Positions of consumer groups on the target: checkpoints, and offsets that are set.

`counterparts` says where offsets of the source lie on the target, `translation_cache` keeps what
changed; `checkpoints`, `group_sync` and `share_sync` are the duties that write it down.
"""
