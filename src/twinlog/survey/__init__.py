"""Reads the state of a flow's two clusters, in terms of `mirror`.

Read `discovery` first (the partitions that a flow mirrors), then `map_reader` (the offset map),
`replica` (how far a partition is copied, and the evidence), `picture` (the order of the reads),
`rights` and `capabilities` (permissions and broker behaviour), `cluster_state` (which topics are
copies) and `open_transactions`. `verify` compares both logs of a partition, `transformed_source`
transforms the source's log for such a comparison.
"""
