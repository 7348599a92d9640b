"""`twinlog diff`: what differs between the two clusters of a flow, by the flow's own rules. Read
`deviation` first: the values; `comparison` puts the parts together, which are a file each.
"""
