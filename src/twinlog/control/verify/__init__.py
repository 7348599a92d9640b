"""`twinlog verify`: whether targets have the records of their sources, compared one by one.

Begin to read with `result`, which has the values, and writes them to the target. `verification`
queries both clusters of a flow. `workers` compare, in this process or on Spark (`survey.verify`,
`mirror.verify`). `functions` runs the transforms of a flow for a comparison.
"""
