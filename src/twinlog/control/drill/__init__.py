"""Drill: rehearses a switchover and a failover of a flow with its own topics, groups and clients,
on the real clusters, and removes everything again.

Read in this order: `cleaning` (names of a drill, and their removal), `rehearsal` (its
producer and consumer, the steps, and which records were lost, duplicated or moved), `drill` (from
start to end, the flow's configuration under other names, and the report).
"""
