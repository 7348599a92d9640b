"""The offset map: which upstream record every target offset is, and what it says.

Read `offset_map` (its rows and rules) and `runs`; `map_tail` is its end, as a lane writes it,
`translation` answers for one offset, `origins` for each record of a batch, `rebuilt_runs` finds a
map again from the logs.
"""
