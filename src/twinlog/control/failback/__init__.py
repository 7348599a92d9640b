"""Failback: after a failover the flow's source is back, with records that were never copied.

Read in this order: `copy_end` (where the copy ended) and `divergence` (where the logs of both sides
diverge), both with `search_in_parallel` (reads of many partitions in few requests); `saved` (the
records that only the source has are saved before anything else), `failback` (the plan, the run and
the flow back); then `replay` (the tail is appended to the new primary, while the promotion that the
run relies on is valid).

The only state is in the saved files and in the clusters. docs/adr/0024 has what happens if a run
dies after each step.
"""
