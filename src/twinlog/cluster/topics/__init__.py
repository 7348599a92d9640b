"""Topics, their configs and ACLs, and the configs and quotas of a cluster.

`topic_admin` creates, grows and deletes topics. `configs` and `alter_configs` read and set configs,
`acls` and `quotas` the objects of these names. `cluster_info` and `producer_expiry` are facts about
brokers. `internal_log` reads and writes Twinlog's own small topics; `mm2_topics` creates those of
MirrorMaker 2.
"""
