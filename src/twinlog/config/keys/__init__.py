"""Tables of all configuration keys: names, types, defaults and meanings.

`key_types` defines the fields of a key; `key_table` has all keys by name.
"""
