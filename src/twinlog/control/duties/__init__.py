"""The work of a flow's leader beside copying, in rounds.

`rounds` runs duties and defines what a duty is. `handed_topics` decides which topics they may
change, and `led_log` is how they write for readers. Each other file is one duty, or two that are
alike. The duties on groups are in `control.groups`, and `control.flow.managed_flow` lists all
duties.
"""
