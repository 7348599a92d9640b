"""One process that runs the flows of a configuration: Spark, channel, supervisor, reload.

`run.run_mirror` is where `twinlog mirror` enters.
"""
