"""The life of a flow in the driver: set up, led, run, stopped, begun again.

Read `phases` (the table of its life), `managed_flow` (the steps), `flow_setup` (how it comes up),
`tries` (when a set-up that failed is tried again), `set_up_publication` (how other hosts hear why),
`generation` (what goes while it is led), then `control.running`. `wishes` writes what people want,
for the command line and REST; `steering` follows it; `trouble`, `snapshots` and `shown` are what is
seen.
"""
