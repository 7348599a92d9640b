"""Consumer groups: their offsets, their members, and membership of our own (who leads a flow).

Read `coordinators` (who answers for a group), then `group_offsets`; `membership` with `member` and
`group_protocol` is how processes agree on a leader. `group_sides` has what a
group is on one cluster, for people.
"""
