"""Whether a target partition holds what its source partition holds, by the offset map that pairs
them.

Read `difference` (what is found), `pairs` (which record is where by the map), `side` (one log as it
is walked), then `walk` (both logs), with `realignment` for where they part.
"""
