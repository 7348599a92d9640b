"""Reads and compares both logs of a partition, in a process or in Spark tasks.

Read `partition` (the queries before, and the comparison), `pieces` (a log batch by batch), then
`sections` (a partition split for several tasks). The rules are those of `mirror.verify`.
"""
