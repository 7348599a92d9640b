"""Access to one Kafka cluster over the network.

Read `client` first: it finds brokers and sends requests. `net` has its connections and retries, and
`security` TLS and SASL. `logs`, `topics` and `groups` have the requests, by their subject.
`group_messages` defines messages that the client library lacks, and `kafka_package` limits how much
of that library is loaded. `broker_versions`, `round_trips` and `certificates` collect facts for
commands: what brokers offer, how far away they are, and when certificates expire.
"""

from __future__ import annotations

from twinlog.cluster.kafka_package import spare_clients

spare_clients()
