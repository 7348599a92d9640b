"""Tables of all configuration keys: names, types, defaults and meanings.

`key_table` has all keys by name; `client_keys` has the names of Java clients' settings.
"""
