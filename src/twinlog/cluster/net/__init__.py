"""Connections to brokers: addresses, sockets, requests and their retries.

Read `settings` (what a connection needs), `dialing` and `connection` (one broker, one request),
`pool` and `retry` (a cluster), and `hot_connection` (many requests in flight, for lanes).
"""
