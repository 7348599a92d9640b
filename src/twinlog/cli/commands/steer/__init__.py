"""Commands that say what people want of flows and topics that run: `flow`, `topic`.

A new intent is a kind in `mirror.state.intents`, a command here, a row of
`control.web.api.endpoints`, and what follows from it in `control.flow.steering`.
"""
