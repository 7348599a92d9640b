"""Groups of a cluster: their offsets and members, transactions, and the election of a flow's
leader.

Read `coordinators` first: it sends one request to each broker for all groups that the broker
coordinates.

- *Offsets*: `group_offsets` (consumer groups), `share_groups`, and `commit_mark` (the last
  micro-batch that a Spark query committed). `transactions` writes records and offsets atomically.
- *Groups*: `group_list` (also deletes groups, and checks permissions), and `group_members` (members
  in text form, and the workers of Kafka Connect).
- *Leadership*: `membership` elects the leader of a flow by the calls in `group_protocol`.
"""
