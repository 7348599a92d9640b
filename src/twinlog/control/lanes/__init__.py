"""Which lane has which partition, and what it is told.

`partitions` is what the driver knows of each, `takes` what a lane gets, `lanes` and leases who has
it, `pacing` how much of a budget.
"""
