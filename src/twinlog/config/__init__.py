"""Reads configuration files into one frozen schema. Every error names file, line and key.

`load` builds the configuration from one or several files and the environment; only `files` and
`strimzi.secrets` open files. `config_file` detects the format. `files`,
`strimzi`, `keys`, `values` and `regex` parse the text, `flow` interprets it, `advice` warns of
probable mistakes.
"""
