"""Records of the state topic: who leads a flow (`generations`), which topics are copies (`copies`),
what people want of a flow (`intents`), and what its source had when it began (`first_survey`).
"""
