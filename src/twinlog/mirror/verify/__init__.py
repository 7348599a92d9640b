"""Whether a target partition holds what its source partition holds, by the offset map that pairs
them.

Read `difference` (what is found) with `tally` (counts by day), `pairs` (which record is where by
the map), `side` (one log as it is walked), then `walk` (both logs), with `batches` for those that
are equal and `realignment` for where both logs part.
"""
