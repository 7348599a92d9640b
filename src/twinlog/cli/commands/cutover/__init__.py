"""Commands that move clients to a flow's target and home again: `failover`, `switchover`,
`failback`; `drill` rehearses it. `begin` is what they begin with.
"""
