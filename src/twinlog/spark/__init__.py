"""Spark: the session, leases (which are Spark jobs), and lanes (which are their tasks).

Read `session`, `lease`, then `lane` (a mirror's task) and `verify` (a task of `twinlog verify`).
"""
