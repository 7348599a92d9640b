"""Connections to brokers: addresses, sockets, requests and their retries.

Read `settings` (addresses and security of a cluster) and `connection` (one broker, one request at a
time), then `pool` and `retry` (a whole cluster). `hot_connection` is the connection of lanes, with
many requests in flight. `read_size` explains quotas. Only `protocol` uses the client library's
messages. `framing` reads responses from a socket.
"""
