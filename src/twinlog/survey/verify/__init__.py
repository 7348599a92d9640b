"""Both logs of a partition read and compared, by a process or by tasks of Spark.

Read `partition` (what is queried before, and the comparison), `pieces` (a log batch by batch), then
`sections` (a partition split for several tasks). The rules are
`mirror.verify`'s.
"""
