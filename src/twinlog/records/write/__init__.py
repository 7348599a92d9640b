"""`df.write` and `df.writeStream` of `format("twinlog")`: one Kafka transaction for all tasks.

Read `transaction` (begin, commit, abort, on the driver) and ADR 33, then `tasks` (which run on
executors): `rows` makes records of Arrow columns and assigns their partitions, `gathering` collects
them into batches, and `appending` writes them exactly once, however often a task runs.
`partitioning` has the user's function `partitioned`, which encodes rows before Spark shuffles them
(`packing`). `options` are the user's options; `writers` are Spark's classes.
"""
