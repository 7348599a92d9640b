"""The configuration of one flow, from the settings that apply to it.

`schema` defines the values that all other code reads. `precedence` decides which line applies.
`flows` builds a flow's configuration and rejects settings that contradict each other.
"""
