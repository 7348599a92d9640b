"""Cutover: clients move to a flow's target, planned (`switchover`) or because its source is lost
(`failover`).

Read in this order: `scope` (the topics and groups concerned), `copies` (how far each partition is
copied), `groups` (where each group resumes), `promotion` (the point of no return), `failover`; then
`gates`, `fence`, `drain`, `switchover`.

The only state is the intents in the state topic (`mirror.state.intents`): each run reads both
clusters and continues from there. docs/adr/0023 has what happens if it dies after each step.
"""
