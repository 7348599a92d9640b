"""Cutover: clients go over to a flow's target, planned (`switchover`) or because its source is gone
(`failover`).

Read in this order: `scope` (what it is about), `copies` (how far each partition is), `groups`
(where each group resumes), `promotion` (the step behind which there is no way back), `failover`;
then `gates`, `fence`, `fence_proof`, `drain`, `switchover`.

There is no state but intents (`mirror.state.intents`): each run looks at both clusters and
continues from what is there. What happens if it dies behind each step: docs/adr/0023.
"""
