"""The HTTP server of a process: metrics and probes, REST, and the paths of Kafka Connect's API.

`server` listens, each request of a `connection` has a deadline, and `front` authenticates and
authorizes clients. `content` compresses responses, and recognizes responses that a client already
has. `api` serves `/api/v1`, and `connect` the paths that scripts for MirrorMaker 2 use; both are
loaded at the first request for them. `page` contains the web page's files.
"""
