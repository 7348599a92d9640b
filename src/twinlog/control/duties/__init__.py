"""What a process that leads a flow does beside copying, in rounds.

`rounds` runs duties, and says what one is; `handed_topics` is what they may touch, `led_log` how
they write for others to read. Each other file is one duty. Those of groups are in
`control.groups`, and `control.flow.duty_catalogue` lists all.
"""
