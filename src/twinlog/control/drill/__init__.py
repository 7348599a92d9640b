"""Drill: rehearses a switchover and a failover of a flow on the real clusters. The drill uses
topics, groups and clients of its own, and removes them again.

Read in this order: `cleaning` (names of a drill, and removal of everything that has such a name),
`rehearsal` (producer, consumers, the steps, and which records were lost, duplicated or out of
order), `drill` (the whole drill, its configuration derived from the flow's, and the report).
"""
