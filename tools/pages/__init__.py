"""Documentation pages that are generated from the tables of the product.

`python -m tools.pages` writes all of them. Tests fail if a page is out of date.
"""
