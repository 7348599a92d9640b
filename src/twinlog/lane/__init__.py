"""One lane: its sockets, its threads, and the loop that moves batches.

Read `loop`, then `lane_partition` (the state of a partition), `assignments` (the life of a
partition in the lane) and `cold_starts`.

- `ports` are the lane's connections to the outside world, and `sides` its two clusters.
- `watches` detect problems that no response shows.
- `messages` are all messages between driver and lane.
- `late_requests` bounds how long requests of a lost lane may still arrive, and explains the number.
  The following code waits for that time: `cold_starts` and `mirror.copy.target_log` (batches that
  must not be sent yet), `control.lanes.takes.put_off` (partitions that never began),
  `control.leading.claims`, and promotion and rebuild in `control`.
"""
