"""Failback: the source of a flow is back behind a failover, with records that never arrived.

Read in this order: `copy_end` (where the copy ended), `parting` (where the logs of both sides
part), both with `side_by_side` (reads of many partitions in few requests); `tail` (the records that
only the source has), `saved` (they are saved before anything else), `plan`, `promotion_watch` (the
promotion that a run relies on, read again), `failback`; then `replay` (they are appended to the new
primary) and `reverse` (the flow that leads back).

There is no state but the files and what the clusters hold. What happens if it dies behind each
step: docs/adr/0024.
"""
