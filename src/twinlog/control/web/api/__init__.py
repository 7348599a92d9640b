"""`/api/v1`: the state of flows and the commands in effect, for programs.

`answers` and `inputs` (queries and bodies) define the types. `python -m tools.pages` makes
`openapi.json` from them, which is served as it is.
`endpoints` maps paths to answers; `app` runs them, caches answers, and sends server-sent events.
`leaders` reads the reports of leading processes, and `shown` converts snapshots and reports to
answers.
"""
