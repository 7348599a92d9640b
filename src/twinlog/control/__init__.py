"""The driver: keeps flows running, shows them, and steers them. In order: `process` (the flows of
this process, reload and stop); `flow` (the life of a flow, and operators' intents) with `leading`
(which process leads it), `running` (one generation at work), `lanes` (which lane copies what),
`risk` (the possible loss) and `loops` (what must not be copied); `groups` and `duties` (work beside
the copy); `adopt` (the take-over from MirrorMaker 2); `cutover`, `failback` and `drill` (moving
clients to the target and back, and rehearsals); `watch` (state and metrics) and `web` (HTTP);
`verify`, `compare`, `doctor`, `check`, `rebuild` and `support_bundle` (one command each).
"""
