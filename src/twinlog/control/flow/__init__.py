"""The life of a flow in the driver: it is set up, led, run, stopped, and started again.

Read `phases` (the table of a flow's life), `managed_flow` (its steps, and retries of a set-up),
`flow_setup` (how a flow is set up), `generation` (what runs while a flow is led), then
`control.running`. `wishes` writes operators' intents, for the command line and REST; `steering`
follows these intents. `trouble`, `snapshots` and `shown` build what operators see.
"""
