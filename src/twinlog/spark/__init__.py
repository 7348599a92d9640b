"""Spark: the session, leases that run as its jobs, and the lanes inside them.

Read `session`, `lease`, then `lane` (what a task runs).
"""
