"""The driver: what keeps flows running, and what shows and steers them.

From the top: `process` runs flows in this process and obeys reload and stop; `verify`,
`compare`, `doctor`, `check`, `rebuild` and `support` are command lines of their own; `flow` is the
life of a flow, and does what people want of it (pause, limit: intents, `cli.commands.steer`),
with `leading` (which process leads it), `running` (one generation at work), `risk` (what would be
lost), `lanes` (who copies what) and `loops` (what must not be copied); `groups` and `duties` go
beside the copy; `adopt` takes over from MirrorMaker 2; `cutover` moves clients to the target,
`failback` home again, `drill` rehearses it; `watch` is what people and machines see, `web` serves
it over HTTP.
"""
