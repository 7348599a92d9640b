"""`twinlog verify`: compares every record of the source with its copy on the target.

Begin to read with `result`, which has the results' fields, and writes them to the target.
`verification` queries both clusters of a flow. `workers` compare partitions in this process or on
Spark, by `survey.verify` and `mirror.verify`. `functions` runs a flow's transforms.
"""
