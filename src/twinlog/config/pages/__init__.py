"""Pages of the documentation that are made from the key tables.

`python -m twinlog.config.pages.keys_page` writes one, `...strimzi_page` the other.
"""
