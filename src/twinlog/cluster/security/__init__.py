"""TLS and SASL of a connection, configured by the keys of a Java client.

A file that works for a Java client must work here unchanged. But lanes run in Spark's executors, on
machines without the user's files, and Python uses OpenSSL instead of Java's own TLS. So security
has two halves:

    driver    client keys, keystores, password files --> SecuritySettings: plain values, PEM text
                                                              |
                                                              | over the encrypted channel
                                                              v
    lanes     SecuritySettings --> TLS context, SASL exchange of each new connection

- *Loading*: `security_keys` reads all keys, with `tls_keys` and `oauth_keys` for their parts.
  `client_keys` makes each error name its key. `keystores` reads Java's stores. The result is in
  `security_settings`.
- *Using*: `tls` secures a socket, `sasl` authenticates by PLAIN, SCRAM or OAUTHBEARER. Tokens come
  from `oauth`, which requests and caches them.
- *Renewing*: `renewal` follows the files, and passes on their new content to new connections.

Kerberos (GSSAPI, Java's default mechanism) is not supported. It needs a C library, a configuration
of the machine and a ticket on every host of a lane, so it would not follow from the client's keys.
A configuration that requires it is rejected with the alternatives (`security_keys`). Java classes
as callback handlers or SSL engines are rejected as well: they cannot run here, and to ignore them
would change how the user is authenticated.
"""
