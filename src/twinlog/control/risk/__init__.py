"""The risk of losing records if the source were lost now, or by the source's retention before they
are copied (`loss`).

`source_watch` queries the source, even if nothing is copied, and `idle` finds the positions of
partitions without a lane. `running_flow` is the part of a flow's run that they use.
"""
