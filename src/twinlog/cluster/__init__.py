"""One Kafka cluster over the network: connections, metadata, admin, logs, group membership."""
