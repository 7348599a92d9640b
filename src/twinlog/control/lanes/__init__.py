"""Assignment of partitions to lanes, and the messages that lanes get.

`partitions` is the driver's state of each partition, with its retries. `takes` builds the messages
that start partitions in lanes, `lanes` has the lanes with their partitions, and `pacing` shares a
byte budget. `retention_outlook`, and the recovery point in `partitions`, show how safe a
partition's records are.
"""
