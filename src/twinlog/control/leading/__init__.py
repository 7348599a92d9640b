"""What is needed before a flow copies its first record: the lead and a generation.

Read `lead` (the consumer group that elects a leader, standbys, and what keeps a flow from starting)
and `claims` (the generation that a leader claims in the state topic before any other write).
"""
