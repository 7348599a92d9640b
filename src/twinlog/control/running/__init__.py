"""One running flow in one generation: leases begin and end, and their lanes get partitions.

Read `flow_run` (the turn, and the interface of a run), `run_state` (its data), then the rules:
`run_leases` (which lanes there are) and `giving` (which partitions each lane gets).
"""
