"""`twinlog verify`: whether targets hold what their sources hold, record by record. Read `result`
first: the values; `verification` asks both clusters of a flow, and `groups` what groups have there;
`workers` compare, in this process or on Spark (`survey.verify`, `mirror.verify`), and `progress`
says how far they are; `recording` leaves what was found on the target.
"""
