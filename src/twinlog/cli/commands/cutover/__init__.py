"""Commands that move clients to a flow's target: `failover`, `switchover`, `failback`."""
