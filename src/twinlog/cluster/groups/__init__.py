"""Consumer groups: their offsets, their members, and Twinlog's own membership (who leads a flow).

Read `coordinators` (which broker is responsible for a group), then `group_offsets`. With
`membership`, `member` and `group_protocol`, processes agree on a leader. `group_sides` describes a
group on one cluster, for people.
"""
