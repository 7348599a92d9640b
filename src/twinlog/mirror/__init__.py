"""What replication means, without sockets or threads: names, positions, the offset map, the copy.

`plan` is one partition that is mirrored; `start` finds where it resumes, `copy` what is sent, `map`
what is written down of it; `names` says which topics, configs and ACLs are mirrored, and under
which names; `state` is what the target keeps of flows and their copies.
`verify` compares two logs. `findings` words what is wrong with two logs.
"""
