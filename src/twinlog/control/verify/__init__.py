"""`twinlog verify`: whether targets have the records of their sources, compared one by one.

Begin to read with `result`, which has the values. `verification` queries both clusters of a flow.
`workers` compare, in this process or on Spark (`survey.verify`, `mirror.verify`). `recording`
writes the result to the target.
"""
