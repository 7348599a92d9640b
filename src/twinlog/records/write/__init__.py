"""`df.write` and `df.writeStream` of `format("twinlog")`: one Kafka transaction for all tasks.

Read `transaction` (begin, commit, abort, on the driver) and ADR 33, then `writers` (Spark's
classes, and the task that runs on executors). `rows` makes records of Arrow columns and assigns
their partitions. `appending` writes the records exactly once, however often a task runs.
`partitioning` has the user's function `partitioned`, which encodes rows as batches before Spark
shuffles them. `packing` defines these batches, and gathers rows until they fill a batch. `options`
are the user's options.
"""
