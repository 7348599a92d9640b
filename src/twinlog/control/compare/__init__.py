"""`twinlog diff`: differences between the two clusters of a flow, by the flow's own rules. Begin to
read with `deviation`, which has the values. `comparison` combines the parts, one file each.
"""
