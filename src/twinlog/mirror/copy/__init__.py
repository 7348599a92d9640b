"""The copy of one partition: from fetched batches to produced ones, exactly once.

Read `partition` (what may be sent, what answers mean) and `intake` (which batches pass as they
are), then `refusals` (what a refused batch means); `fan_out` places records by key, `joining` makes
small batches larger, `splitting` smaller ones of what the target refuses.
"""
