"""The life of a flow in the driver: it is set up, led, run, stopped, and started again.

Read `phases` (the table of its life), `managed_flow` (the steps, and when a failed set-up is
retried), `flow_setup` (how it is set up), `generation` (what runs while it is led), then
`control.running`. `wishes` writes operators' intents, for the command line and REST; `steering`
follows them; `trouble`, `snapshots` and `shown` are what operators see.
"""
