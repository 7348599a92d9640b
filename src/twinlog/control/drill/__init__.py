"""Drill: a switchover and a failover of a flow are rehearsed with topics, groups and clients of
their own, on the real clusters, and everything is removed again.

Read in this order: `names` (what is a drill's), `clients` (who writes and reads), `rehearsal` (what
is done), `verdict` (what was lost, repeated or moved), `drill` (from start to end, and the flow
under names of its own), `cleaning`, `report`.
"""
