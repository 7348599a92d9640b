"""The risk of losing records (`loss`): which records would be lost if the source were lost now, and
which ones the source's retention may delete before they are copied.

`source_watch` queries the source, even if nothing is copied. `idle` finds the positions of
partitions without a lane. `running_flow` is the interface of a flow's run for these modules.
"""
