"""The life of a flow in the driver: set up, led, run, stopped, begun again.

Read `supervisor` (all flows), `managed_flow` (one, between tries), `flow_setup` (how it comes up),
`flow_run` (leases and lanes while it runs, and the wait after one was lost); `leading` and
`sharing` say which process leads.
"""
