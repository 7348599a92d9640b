"""`twinlog diff`: differences between the two clusters of a flow, by the flow's own rules."""
