"""The driver: runs flows, shows their state, and carries out operators' commands. Read in this
order: `process` (the flows of this process, reload and stop); `flow` (the life of a flow, and
intents) with `leading` (which process leads it), `running` (one generation of it), `lanes` (which
lane copies which partitions), `risk` (the possible loss) and `loops` (topics that must not be
copied); `groups` and `duties` (periodic tasks beside the copy); `adopt` (take-over from MirrorMaker
2); `cutover`, `failback` and `drill` (moving clients to the target and back, and rehearsals);
`watch` (state and metrics) and `web` (HTTP). `verify`, `compare`, `doctor`, `check`, `rebuild` and
`support_bundle` implement one command each.
"""
