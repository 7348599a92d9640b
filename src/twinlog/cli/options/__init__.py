"""Options that several commands have, and the configuration files that they lead to.

`command` and `option` are what all commands and options of ours are; `candidates` is what `shells`
offer for them. `run_options` says what is run, `configuration` loads it.
"""
