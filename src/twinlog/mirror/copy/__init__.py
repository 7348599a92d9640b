"""Copies one partition exactly once: turns fetched batches into produced batches.

Read `partition` first (what may be sent, and what each response means) and `intake` (which batches
pass unchanged), then `refusals` (what a rejected batch means) and `target_log` (late requests of
earlier lanes, other writers, leader epochs). `fan_out` distributes records over target partitions
by key, and `batch_sizes` joins small batches and splits those that the target rejects as too large.
`transformed` copies records that user code changes, with `ranges` and `range_intake`.
"""
