"""Documentation pages that are generated from the key tables.

`python -m twinlog.config.pages.keys_page` writes docs/configuration.md, `...strimzi_page` writes
docs/strimzi.md. The text of a row is in its table: `config/keys`, `config/strimzi`.
"""
