"""`/api/v1`: what is shown and wanted of flows, for programs.

`answers` has the types, of which `openapi` makes the document; `endpoints` says which path answers
what, `app` runs them. `leaders` hears processes elsewhere, `shown` makes answers of what is known,
`stream` sends them on as they come.
"""
