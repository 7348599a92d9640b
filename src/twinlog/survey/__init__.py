"""What is found on the two clusters of a flow, in the words of `mirror`: read, never steered.

Read `discovery` first (which partitions a flow mirrors), then `map_reader` (the offset map),
`rights` and `capabilities` (what may and can be done), `cluster_state` (which topics are copies),
`open_transactions` (whose they are); `verify` compares both logs of a partition.
"""
