"""Determines where the copy of a partition resumes, by checking both logs.

Read `position` (the steps, and what each relies on), then `cold_start` (many partitions together),
`tail_check` and `resume_point` (comparison of records), `corrections` (runs that the map lost),
`our_end` and `fan_start` (topics to which other clients write, too), `first_start` (partitions
without a row in the offset map), and `announced` (transformed records).
"""
