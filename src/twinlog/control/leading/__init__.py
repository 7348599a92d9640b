"""Which process leads a flow, and in which generation.

Read `lead` (the consumer group that elects, standbys, what keeps a flow from beginning), then
`claims` (the generation that a leader claims in the state topic before it writes anything).
"""
