"""Names of topics on the target, and the selection of topics, configs and ACLs to mirror.

Read `naming` (the policies) and `filters` (which topics), then `renaming`, `config_rules` and
`acl_rules`.
"""
