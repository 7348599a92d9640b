"""The work of a flow's leader beside copying, in rounds.

`rounds` defines and runs duties. `handed_topics` decides which topics a duty is permitted to
change. `led_log` appends results to topics that clients read. Each other file has one or two
duties. The duties on groups are in `control.groups`, and `control.flow.managed_flow` lists all
duties.
"""
