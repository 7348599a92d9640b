"""Options that several commands have, and the configuration files that they lead to.

`run_options` says what is run, `configuration` loads it.
"""
