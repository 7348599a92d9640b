"""Which lane has which partition, and what is sent to it.

`partitions` is what the driver knows of each and when one that stopped is tried again, `takes` what
a lane gets, `lanes` who has it, `pacing` how much of a budget. `retention_outlook`, and the
recovery point in `partitions`, show how safe a partition's records are.
"""
