"""What must be so before a flow copies its first record: which process leads it, in which
generation, and what its target is like.

Read `lead` (the consumer group that elects, standbys, what keeps a flow from beginning), `claims`
(the generation that a leader claims in the state topic before it writes anything), `target_facts`;
`ends` has the two clusters of a flow and the clients for both.
"""
