"""Cutover: clients move to a flow's target, planned (`switchover`) or because its source is lost
(`failover`).

Read in this order: `scope` (the topics and groups concerned), `copies` (how far each partition is
copied), `groups` (where each group resumes), `promotion` (the point of no return), `failover`; then
`gates`, `fence`, `drain`, `switchover`.

The only state is the intents in the state topic (`mirror.state.intents`): each run reads both
clusters and continues from there. docs/adr/0023 has what happens if it dies after each step.
"""

from __future__ import annotations

from typing import Final

GATES: Final = (
    *("mirror", "topics", "copy", "lag", "replicas", "configs", "acls", "groups", "foreign"),
    "transactions",
)
"""Names of the gates of a switchover, in the order in which they are checked (`gates`)."""
