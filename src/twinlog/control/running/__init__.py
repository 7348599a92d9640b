"""One flow while it runs in one generation: leases begin and end, and their lanes get partitions.

Read `flow_run` (the interface of a run, and what it does ten times a second), `run_state` (its
data), then the rules: `run_leases` (which lanes there are), `giving` (which partitions each lane
gets) and `lane_use` (when one lane gets all of them).
"""
