"""Commands that control running flows and topics: `flow`, `topic` (with `skip`), and `repair`.

A new intent needs a kind in `mirror.state.intents` (with a value: `client.steering` too), a command
here, a row of `control.web.api.endpoints` (then docs/rest.md), and its effect: during a run in
`control.flow.steering`, before a run in `control.flow.flow_setup`. Kafka Connect's paths write
intents, too (`control.web.connect`). Intents are shown by `control.flow.snapshots`,
`control.check.offline_status`, `control.doctor.observing` and the page.
"""
