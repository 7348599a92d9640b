"""One process that runs the flows of a configuration: Spark, channel, supervisor, commands.

`run.run_mirror` is where `twinlog mirror` enters. Read `supervisor` (the turn over all flows), then
`commands` (what may be asked of the process; of a flow it is an intent), `calls` (the one thread
that decides), `leases` (whose lane it is), `sharing` (which process leads how many flows) and
`failed_set_ups` (what other hosts hear of flows that nobody leads).
"""
