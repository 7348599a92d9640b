"""Spark: the session, leases that run as its jobs, the lanes inside them, and their channel."""
