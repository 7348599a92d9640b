"""Which lane has which partition, and what is sent to it.

`partitions` is the driver's state of each partition, with its retries, `takes` the messages to
lanes, `lanes` the lanes with their partitions, `pacing` the shares of a budget.
`retention_outlook`, and the recovery point in `partitions`, show how safe a partition's records
are.
"""
