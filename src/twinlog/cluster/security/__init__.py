"""TLS and SASL of connections, configured by the keys of Kafka's Java client.

A properties file that works for a Java client must work for Twinlog unchanged. But lanes run in
Spark's executors, on machines without the user's files, and Python uses OpenSSL instead of Java's
own TLS. So this package has two halves:

    driver    client keys, keystores, password files --> SecuritySettings: plain values, PEM text
                                                              |
                                                              | over the encrypted channel
                                                              v
    lanes     SecuritySettings --> TLS context, SASL exchange of each new connection

- *Loading*: `security_keys` reads all keys, with `tls_keys` for `ssl.*` and `oauth_keys` for
  OAUTHBEARER. `client_keys` adds the key and its location to each error. `keystores` reads Java's
  stores. `security_settings` defines the result.
- *Using*: `tls` secures a socket, `sasl` authenticates by PLAIN, SCRAM or OAUTHBEARER. Tokens come
  from `oauth`, which requests and caches them.
- *Renewing*: `renewal` detects changed files, and provides their new content to new connections.

Kerberos (GSSAPI, Java's default mechanism) is not supported. It needs a C library, a configuration
of the machine and a ticket on every host of a lane, so the client's keys would not be sufficient. A
configuration that requires it is rejected with the alternatives (`security_keys`). Java classes as
callback handlers or SSL engines are also rejected, because they cannot run in Python. If they were
ignored, the user would be authenticated in another way than configured.
"""
