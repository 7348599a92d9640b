"""The state of running flows, for users and monitoring: snapshots, rates, metrics, events.

`snapshot` has the values from which everything else is derived. `monitor` keeps the newest
snapshots of all flows, for `control.web`. `series` produces `/metrics`, with the names and labels
of `twinlog.metrics`.
"""
