"""Names of topics on the target, and the selection of topics, configs and ACLs to mirror."""
