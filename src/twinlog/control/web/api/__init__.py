"""`/api/v1`: the state of flows and the commands in effect, for programs.

`answers` defines the types, from which `openapi` makes the document. `endpoints` maps paths to
answers, and `app` runs them, caches answers, and sends server-sent events. `leaders` reads the
reports of leading processes, and `shown` converts snapshots and reports to answers.
"""
