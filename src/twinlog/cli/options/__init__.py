"""Options that several commands share, and the configuration files that they name.

`command` and `option` are the base classes of all commands and options. `candidates` are the values
that shells complete. `run_options` names what to run; `configuration` loads it.
"""
