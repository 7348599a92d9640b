"""`twinlog verify`: whether targets hold what their sources hold, record by record. Read `result`
first: the values; `verification` puts a flow together of `partition` and `groups`; `pieces` reads.
"""
