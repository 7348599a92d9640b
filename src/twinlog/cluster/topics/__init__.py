"""Topics, their configs and ACLs, and the configs and quotas of a cluster.

`topic_admin` creates, grows and deletes topics, and creates those of MirrorMaker 2. `configs` reads
and sets configs, `acls` and `quotas` the objects of these names. `cluster_info` has facts about the
cluster and its brokers. `internal_log` reads and writes Twinlog's own small topics.
"""
