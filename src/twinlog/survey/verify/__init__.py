"""Reads and compares both logs of a partition, in a process or in Spark tasks.

Read `partition` (the queries before, a log batch by batch, and the comparison), then `sections` (a
partition split for several tasks). The rules are those of `mirror.verify`.
"""
