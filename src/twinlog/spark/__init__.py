"""Spark: the session, leases that run as its jobs, and the lanes inside them.

Read `session`, `lease`, then `lane` (what a task of a mirror runs) and `verify` (one of `twinlog
verify`).
"""
