"""What people and machines see of running flows: snapshots, rates, metrics, HTTP, events.

`snapshot` has the values that all others show; `monitor` serves them; `series` fills and writes
what `/metrics` has.
"""
