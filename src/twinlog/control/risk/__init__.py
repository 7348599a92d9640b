"""The risk of losing records: those that would be lost with the source now, and those that the
source's retention may delete before they are copied (`loss`).

`source_watch` queries the source, even if nothing is copied. `idle` finds the positions of
partitions without a lane. `running_flow` is the interface of a flow's run for these modules.
"""
