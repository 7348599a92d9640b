"""What replication means, without sockets or threads: names, positions, the offset map, the copy.

`plan` is one partition that is mirrored; `start` finds where it resumes, `copy` what is sent, `map`
what is written down of it; `names` and `state` are what both clusters know of it by name.
`findings` words what is wrong with two logs.
"""
