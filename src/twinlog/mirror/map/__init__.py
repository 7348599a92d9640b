"""The offset map: which upstream record every target offset is, and what it says.

Read `offset_map` (its rows and rules) and `runs`; `map_tail` is its end, as a lane writes it,
`translation` answers for one offset, `origins` for each record of a batch, `rebuilt_runs` and
`rebuilt_rows` find a map again from the logs, `accepted_records` what others wrote between ours.
`mm2_offsets` and `offset_syncs` are what MirrorMaker 2 knew, and knows.

What groups get of it: `checkpoints` has the rules, `synced_offsets` what was given.
"""
