"""One process that runs the flows of a configuration: Spark, channel, supervisor, commands.

`run.run_mirror` is the entry point of `twinlog mirror`. Read `supervisor` (the thread that decides
for all flows), then `commands` (requests to the process; a request to a flow is an intent) and
`sharing` (how flows are distributed over processes).
"""
