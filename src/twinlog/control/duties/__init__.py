"""What a process that leads a flow does beside copying, in rounds.

`rounds` runs duties, and says what one is; each other file is one duty. Those of groups are in
`control.groups`, and `control.flow.duty_catalogue` lists all.
"""
