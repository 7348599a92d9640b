"""Queries and appends to the logs of partitions, by requests to their leaders.

Read `per_leader` first: it sends one request to each leader for all of its partitions. A partition
without a leader does not delay the other ones. `offsets` finds the begin and end of logs, and
`start_offsets` the first offset of a new reader. `raw_log` reads and appends batches. `producers`
reads the state of producer IDs.
"""
