"""One flow at work in one generation: leases come and go, their lanes are given partitions.

Read `flow_run` (the turn, and what may be asked of a run), `run_state` (what it knows), then the
rules: `run_leases` (which lanes there are) and `giving` (which partitions each gets).
"""
