"""Commands that move clients to a flow's target and back: `failover`, `switchover`, `failback`;
`drill` rehearses these moves. `begin` has the shared first steps.
"""
