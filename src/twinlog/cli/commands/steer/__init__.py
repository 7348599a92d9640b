"""Commands that say what people want of flows and topics that run: `flow`, `topic` (with `skip`),
and `repair`.

A new intent is a kind in `mirror.state.intents` (with a value: `client.steering` too), a command
here, a row of `control.web.api.endpoints` (then docs/rest.md), and what follows from it in
`control.flow.steering`. Who shows it: `control.flow.snapshots`, `control.check.offline_status`,
`control.doctor.observing`, the page.
"""
