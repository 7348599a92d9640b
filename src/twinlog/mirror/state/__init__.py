"""Records of the state topic: who leads a flow (`generations`), which topics are copies (`copies`),
what people want of a flow (`intents`, with `skipping` and `acceptance` of single records), what
`twinlog verify` found last (`verified`).
"""
