"""Commands that say what people want of flows and topics that run: `flow`, `topic` (with `skip`),
and `repair`.

A new intent is a kind in `mirror.state.intents` (with a value: `client.steering` too), a command
here, a row of `control.web.api.endpoints` (then docs/rest.md), and what follows from it: in a run
`control.flow.steering`, before one `control.flow.flow_setup`. Kafka Connect's paths write intents,
too (`control.web.connect`). Who shows it: `control.flow.snapshots`, `control.check.offline_status`,
`control.doctor.observing`, the page.
"""
