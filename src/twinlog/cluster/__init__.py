"""Access to one Kafka cluster over the network.

`client` finds brokers and sends requests. `net` and `security` make its connections; `logs`,
`topics` and `groups` have the requests. `group_messages` defines requests that the client library
lacks. `certificates` finds the expiry of the certificates in use, and `kafka_package` limits how
much of the library is loaded.
"""

from __future__ import annotations

from twinlog.cluster.kafka_package import spare_clients

spare_clients()
