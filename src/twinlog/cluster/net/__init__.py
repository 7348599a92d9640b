"""Connections to brokers: addresses, sockets, requests and their retries.

Read `settings` (what a connection needs) and `connection` (one broker, one request at a time), then
`pool` and `retry` (a whole cluster). `hot_connection` is the connection of lanes, with many
requests in flight. `read_size` explains quotas. `protocol` is the only access to the client
library's messages, and `framing` reads them from a socket.
"""
