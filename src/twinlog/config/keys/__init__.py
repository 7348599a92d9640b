"""Every key there is: tables of names, types, defaults and meanings.

`key_types` says what is written down of a key, `key_table` has all of them by name.
"""
