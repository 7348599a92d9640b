"""The life of a flow in the driver: set up, led, run, stopped, begun again.

Read `phases` (the table of its life), `managed_flow` (the steps, and when a failed set-up is
retried), `flow_setup` (how it is set up), `set_up_publication` (how other hosts learn why not),
`generation` (what goes while it is led), then `control.running`. `wishes` writes what people want,
for the command line and REST; `steering` follows it; `trouble`, `snapshots` and `shown` are what is
seen.
"""
