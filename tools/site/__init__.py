"""The documentation site, built with Sphinx from the Markdown pages of the repository.

`python -m tools.site` builds it strictly: a broken link, a missing anchor or any other warning is
an error. Read `pages` first: it copies the pages into a source folder that looks like the
repository, so that relative links work as they do on a code host. `navigation` derives the sidebar
from docs/README.md. `reference` generates two pages that exist only on the site: the help texts of
all commands and the public Python API. `conf` is Sphinx's configuration.
"""
