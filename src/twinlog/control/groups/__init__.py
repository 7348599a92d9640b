"""Positions of consumer groups on the target: checkpoints, and offsets that are set.

`offset_places` says where offsets of the source lie on the target, `translations` keeps what
changed; `checkpoints`, `group_sync` and `share_sync` are the duties that write it down.
"""
