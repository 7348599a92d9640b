"""Options that several commands share, and loading of the configuration files that options name.

`command` and `option` have the base classes of all commands and options. `candidates` has the
values that shells complete. `run_options` selects the files and flows to run, and loads them.
"""
