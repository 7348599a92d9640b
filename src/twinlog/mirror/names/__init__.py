"""Names of topics on the target, and which topics, configs and ACLs are mirrored."""
