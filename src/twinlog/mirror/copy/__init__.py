"""Copies one partition exactly once: turns fetched batches into produced batches.

Read `partition` first (what may be sent, and what each response means) and `intake` (which batches
pass unchanged), then `refusals` (what a rejected batch means), `earlier_lane` (late requests) and
`target_leader` (leader epochs). `fan_out` distributes records over target partitions by key,
`joining` joins small batches into larger ones, and `splitting` splits batches that the target
rejects as too large. `transformed` copies records that code of users changes, with `ranges` and
`range_intake`. `other_writers` is for topics to which other clients write as well.
"""
