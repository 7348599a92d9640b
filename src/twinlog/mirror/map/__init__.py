"""The offset map: which upstream record each target offset is.

Read `offset_map` (its rows and rules) and `runs` first.

- `map_tail` is the end of a map, as a lane writes it.
- `translation` translates single offsets, and `origins` the records of a batch.
- `rebuilt_map` rebuilds a map from the logs.
- `foreign_records` handles other clients' records between this flow's records and after them.
- `mm2_offsets` is MirrorMaker 2's knowledge of offsets.
- `synced_offsets` has the offsets that were set for groups.
"""
