"""Reads configuration files into one frozen schema. Every error names file, line and key.

`load` builds the configuration from a file and the environment; only `files` and `strimzi.secrets`
open files. `config_file` detects the format, and `combined` joins several files. `files`,
`strimzi`, `keys`, `values` and `regex` parse the text, `flow` interprets it, `advice` warns of
probable mistakes.
"""
