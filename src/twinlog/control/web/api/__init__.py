"""`/api/v1`: the state of flows and the commands in effect, for programs.

`inputs` defines the types of queries and bodies; those of answers are in `tools/pages`, because
answers are encodings of values. `python -m tools.pages` makes `openapi.json` from both, which is
served as it is.
`endpoints` maps paths to answers; `app` runs them, caches answers, and sends server-sent events.
`leaders` reads the reports of leading processes, and `shown` converts snapshots and reports to
answers.
"""
