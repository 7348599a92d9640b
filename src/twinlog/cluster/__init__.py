"""One Kafka cluster over the network.

`client` finds brokers and asks them; `net` and `security` are its connections, `logs`, `topics` and
`groups` what is asked; `group_messages` are requests that the client library lacks. `certificates`
says when those end that it is entered with, `kafka_package` how little of the library is loaded.
"""

from __future__ import annotations

from twinlog.cluster.kafka_package import spare_clients

spare_clients()
