"""Both logs of a partition read and compared, by a process or by tasks of Spark.

Read `partition` (what is asked before, and the comparison), `pieces` (a log batch by batch), then
`sections` (a partition split for several tasks), and `extent` (how much that is). The rules are
`mirror.verify`'s.
"""
