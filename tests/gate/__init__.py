"""Runs the tests: selects them (`tiers`), stores failures (`outcomes`), finds those that a change
has touched (`changed`), and writes the list of witnesses (`page`). `scripts/test` calls `__main__`,
which starts pytest with `plugin`.
"""
