"""What replication means: names, filters, positions, the offset map, the copy. No sockets."""
