"""Topics, their configs and ACLs, and the configs and quotas of a cluster.

`topic_admin` creates, grows and deletes topics, and creates MirrorMaker 2's internal topics.
`configs`, `acls` and `quotas` read and set configs, ACLs and quotas. `cluster_info` reads versions,
limits and permissions of the cluster and its brokers. `internal_log` reads and writes Twinlog's own
small topics.
"""
