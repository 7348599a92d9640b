"""The risk of losing records: if the source were lost now (`loss`), or by the source's retention
before they are copied (`retention`). `held_back` watches open transactions at the source that hold
a copy back.

`source_watch` queries the source, even if nothing is copied, and `pulse` checks that it responds at
all. `running_flow` is the part of a flow's run that they use.
"""
