"""Which lane has which partition, and what is sent to it.

`partitions` is what the driver knows of each and when one that stopped is tried again, `takes` what
a lane gets, `lanes` who has it, `pacing` how much of a budget, `map_retry` when a map
that could not be read is read again, `lease_retry` when a lease that failed is started again.
`recovery_point` and `retention_outlook` are how safe a partition's records are.
"""
