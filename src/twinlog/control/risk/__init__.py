"""What would be lost: without the source now (`loss`), and to the source's retention before it is
copied (`retention`); and which transactions at the source hold a copy back (`held_back`).

`source_watch` asks the source, whether or not something is copied, and `pulse` whether it answers
at all; `running_flow` is what all of them know of a flow's run.
"""
