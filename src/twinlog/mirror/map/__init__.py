"""The offset map: which upstream record each target offset is.

Read `offset_map` (its rows and rules) and `runs` first.

- `map_tail` is the end of a map, as a lane writes it.
- `translation` translates single offsets, and `origins` the records of a batch.
- `rebuilt_runs` and `rebuilt_rows` rebuild a map from the logs.
- `accepted_records` handles foreign records between this flow's records, `copy_border` those after
  them.
- `mm2_offsets` and `offset_syncs` are MirrorMaker 2's knowledge of offsets, read and written.
- `synced_offsets` has the offsets that were set for groups.
"""
