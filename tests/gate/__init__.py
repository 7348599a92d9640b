"""How the tests are run: which of them (`tiers`), what is kept of those that fail (`outcomes`),
which ones a change has touched (`changed`), and the page that lists the witnesses (`page`).

`scripts/test` calls `__main__`, which starts pytest with `plugin`.
"""
