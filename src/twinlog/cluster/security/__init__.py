"""TLS and SASL of one connection: keys are loaded, a socket is secured, a user authenticated.

`security_keys` turns a Java client's settings into `security_settings` (driver; reads files); `tls`
wraps a socket and words what went wrong, `sasl` authenticates (driver and lanes). The mechanisms
are `scram`, `oauth` with `token_endpoint`; `jks` and `keystores` read Java's stores. `renewal`
follows the files.
"""
