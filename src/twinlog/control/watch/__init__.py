"""What people and machines see of running flows: snapshots, rates, metrics, events.

`snapshot` has the values that all others show; `monitor` keeps the newest of all flows, for
`control.web`; `series` fills what `/metrics` has, by the names and labels of `twinlog.metrics`.
"""
