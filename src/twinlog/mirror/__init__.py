"""The core of replication, without sockets or threads: names, positions, the offset map, the copy.

- `plan` describes one mirrored partition.
- `start` finds where its copy resumes, `copy` decides what is sent, and `map` records the offsets.
- `names` decides which topics, configs and ACLs are mirrored, and under which names.
- `state` has the rows in which a target stores the state of flows and their copies.
- `verify` compares two logs. `findings` has the messages about logs that do not match.
"""
