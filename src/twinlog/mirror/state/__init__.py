"""Rows of the state topic on a flow's target. `state_row` declares and encodes them.

They contain the leaders of a flow (`generations`), the topics that are copies (`copies`), the
copies that have a map (`mapped`), the operators' intents for a flow (`intents`, with `skipping` and
`acceptance` of single records), and the last results of `twinlog verify` (`verified`). `published`
and `published_events` are rows of the status topic, and `rows` is a reading of the state topic.
"""
