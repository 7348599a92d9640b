"""One process that runs the flows of a configuration: Spark, channel, supervisor, commands.

`run.run_mirror` is where `twinlog mirror` enters. Read `supervisor` (the thread that
decides for all flows), then `commands` (requests to the process; a request to a flow is an intent)
and `sharing` (which process leads how many flows).
"""
