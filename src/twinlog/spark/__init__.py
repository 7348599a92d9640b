"""Spark: the session, leases that run as its jobs, and the lanes inside them.

Read `session`, `lease`, then `lane` (a mirror's task) and `verify` (a task of `twinlog verify`).
"""
