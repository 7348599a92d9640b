"""Configuration files become one frozen schema; every error names file, line and key.

`load` makes a configuration of a file and the environment; files are opened in `files` and
`strimzi.secrets` only. `config_file` and `combined` say what
kind of file, and how many; `files`, `strimzi`, `keys`, `values` and `regex` read it, `flow` decides
what it means, `advice` says what may not be meant so, `pages` makes pages of the docs.
"""
