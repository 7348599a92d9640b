"""The core of replication, without sockets or threads: names, positions, the offset map, the copy.

- `plan` describes one mirrored partition.
- `start` finds where it resumes, `copy` decides what is sent, and `map` records it.
- `names` decides which topics, configs and ACLs are mirrored, and under which names.
- `state` is the state of flows and their copies that is kept on the target.
- `verify` compares two logs. `findings` words the messages about logs that do not match.
"""
