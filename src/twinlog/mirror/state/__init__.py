"""Records of the state topic. `state_row` declares and encodes them.

They hold the leaders of a flow (`generations`), the topics that are copies (`copies`), the
operators' intents for a flow (`intents`, with `skipping` and `acceptance` of single records), and
the last result of `twinlog verify` (`verified`).
"""
