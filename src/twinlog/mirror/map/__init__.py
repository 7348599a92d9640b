"""The offset map: which upstream offset each target offset has.

Read `offset_map` (its rows and rules) and `runs` first.

- `map_tail` has the newest runs of a partition's map, those that a lane is writing.
- `translation` translates single offsets, and `origins` those of a batch's records.
- `rebuilt_map` rebuilds a map from the logs.
- `foreign_records` handles other clients' records, between this flow's records and after them.
- `mm2_offsets` translates offsets of records that MirrorMaker 2 copied.
- `synced_offsets` remembers which group offsets Twinlog has set.
"""
