"""TLS and SASL of one connection: load keys, secure a socket, authenticate a user.

`security_keys` turns a Java client's settings into `security_settings` (driver; reads files). `tls`
wraps a socket and explains its errors, and `sasl` authenticates (driver and lanes). OAUTHBEARER is
in `oauth`, with `token_endpoint`. `jks` and `keystores` read Java's stores. `renewal` follows the
files.
"""
