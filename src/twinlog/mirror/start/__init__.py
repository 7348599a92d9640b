"""Where the copy of a partition resumes: both logs are checked, and nothing is believed.

Read `position` (the steps), then `cold_start` (many partitions at once), `tail_check` and
`tail_place` (records compared), `our_end` and `fan_start` (topics that others write to),
`first_start` (partitions without a row).
"""
