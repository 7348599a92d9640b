"""One Kafka cluster over the network.

`client` finds brokers and asks them; `net` and `security` are its connections, `logs`, `topics` and
`groups` what is asked. `certificates` says when those end that it is entered with.
"""
