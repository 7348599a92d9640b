"""`df.write` and `df.writeStream` of `format("twinlog")`: one Kafka transaction for all tasks.

Read `transaction` (begin, commit, abort, on the driver) and ADR 33, then `tasks` (what runs on
executors): `rows` makes records of Arrow columns and gives each its partition, `gathering` waits
until they fill batches, `appending` writes them, once however often a task runs.
`partitioning` is `partitioned`, which a user calls: it has rows encoded before Spark shuffles them
(`packing`). `options` is what a user writes; `writers` are Spark's classes.
"""
