"""Queries and appends to the logs of partitions, by requests to their leaders.

Read `per_leader` first: it sends one request to each leader for all of its partitions, and keeps
one partition from delaying others. `offsets` finds the bounds of logs, `start_offsets` where a
reader begins, `raw_log` reads and appends batches, and `producers` has the state of producer IDs.
"""
