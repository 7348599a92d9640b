"""What is needed before a flow copies its first record: the lead, a generation, and facts about the
target.

Read `lead` (the consumer group that elects a leader, standbys, what keeps a flow from starting),
`claims` (the generation that a leader claims in the state topic before any other write),
`target_facts`, which also has the two clusters of a flow and the clients for both.
"""
