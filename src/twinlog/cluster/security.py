"""The front of everything about TLS and SASL: load the keys, secure a socket, authenticate.

load_security       Java client keys -> SecuritySettings       (driver; reads files)
wrap_socket         TLS handshake                              (driver and lanes)
authenticate        SASL exchange                              (driver and lanes)
explain_tls_error   errors of the first reads: TLS 1.3 brings a refusal of our certificate there
"""

from __future__ import annotations

from twinlog.cluster.sasl import authenticate
from twinlog.cluster.security_keys import load_security
from twinlog.cluster.security_settings import OAuthSettings, SecuritySettings
from twinlog.cluster.tls import explain_tls_error, wrap_socket

__all__ = [
    "OAuthSettings",
    "SecuritySettings",
    "authenticate",
    "explain_tls_error",
    "load_security",
    "wrap_socket",
]
