"""Rows of the state topic on a flow's target. `state_row` declares and encodes them.

They contain the leaders of a flow (`generations`), the topics that are copies and the copies that
have a map (`copies`), the operators' intents for a flow (`intents`), and the last results of
`twinlog verify` (`verified`). `published` has the rows of the status topic, and `rows` all rows
that the state topic had when it was read.
"""
