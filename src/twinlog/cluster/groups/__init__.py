"""Groups of a cluster: their offsets and members, transactions, and the election of leaders.

Read `coordinators` first: it sends one request to each broker for all groups that it coordinates.

- *Offsets*: `group_offsets` (consumer groups), `share_groups`, and `commit_mark` (the progress of a
  DataFrame's query). `transactions` writes records and offsets atomically.
- *Groups*: `group_list` (also deletes groups), `group_members` (also a group on one cluster, for
  people, and the workers of Kafka Connect), and `group_rights`.
- *Leadership*: `membership` elects the leader of a flow, with `group_protocol`.
"""
