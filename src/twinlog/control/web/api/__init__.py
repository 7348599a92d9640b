"""`/api/v1`: the state of flows and the commands in effect, for programs.

`inputs` defines the types of queries and bodies. The types of responses are in `tools/pages`,
because responses are encoded from values of other modules. `python -m tools.pages` generates
`openapi.json` from all these types; the file is served unchanged. `endpoints` maps paths to
handlers; `app` runs them, caches responses, and sends server-sent events. `leaders` reads the
reports of leading processes, and `shown` converts snapshots and reports to responses.
"""
