"""Cutover: clients move to a flow's target, planned (`switchover`) or because its source is lost
(`failover`).

| phase | true if | next step, and what remains if the run dies after it |
| --- | --- | --- |
| PLANNED | no intent FENCE or PROMOTE | fence: intents, then ACLs; the next run finds them |
| FENCED | an intent FENCE for each topic | proof (`drain`): it changes nothing |
| PROVED | no log grew, so the ends are known | drain: it changes nothing |
| DRAINED | everything below the ends is copied | groups: as a group sync would have set them |
| GROUPS_SET | each group is at its offset | promotion, after the conditions are checked again |
| PROMOTED | an intent PROMOTE | point of no return; wait until no lane can append |
| OVER | the copy has certainly ended | groups again, a check that all is copied, the hook |

A failover begins at DRAINED, because its source is lost. The only state is the intents in the state
topic (`mirror.state.intents`): each run reads both clusters and continues with the next step.
docs/adr/0023 describes what happens if a run dies after each step.

Read in this order: `scope` (the topics and groups concerned), `copies` (how far each partition is
copied), `groups` (where each group resumes), `promotion` (the point of no return), `failover`; then
`gates`, `fence`, `drain`, `switchover`. `newest_status` shows what the mirror reports.
"""

from __future__ import annotations

from typing import Final

GATES: Final = (
    *("mirror", "topics", "copy", "lag", "replicas", "configs", "acls", "groups", "foreign"),
    "transactions",
)
"""Names of the gates of a switchover, in the order in which they are checked (`gates`)."""
