"""The TLS handshake with one broker. Errors are explained in terms of Kafka's configuration keys.

    broker's certificate  <- verified with ssl.truststore.*; its host name is checked unless
                             ssl.endpoint.identification.algorithm is empty
    client certificate    <- ssl.keystore.*, if the broker requests one (ssl.client.auth)

As in Java, every certificate in a truststore is trusted, also an intermediate one or the broker's
own. This is not OpenSSL's default, which requires a self-signed root.

OpenSSL's errors contain neither the broker nor a configuration key, and Kafka users do not know
OpenSSL's terms. So every usual error is translated to a sentence with the key to check. With TLS
1.3, the client's handshake ends before the broker has checked the client's certificate. If the
broker rejects it, only the first read after the handshake fails. So `explain_tls_error` is public.

**Cipher suites** have other names in Java than in OpenSSL. Python can select suites only for TLS
1.2. TLS 1.3 has few suites, and none is weak, so they are enabled or disabled together: a list
without a suite of TLS 1.3 disables TLS 1.3, and a list of only such suites disables TLS 1.2.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Final

from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.errors import AuthenticationFailed, ClusterError, Unreachable
from twinlog.folders import memory_file

TLS_1_3: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
_SIGNALS: Final = frozenset({"TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV"})
"""Signals that Java lists as suites. They are ignored, because OpenSSL always sends them."""
_JAVA_NAME: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")
_KEY_BITS: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)")


def unknown_suites(suites: Sequence[str]) -> list[str]:
    """Return the suites (by their Java names) that this machine's OpenSSL does not support."""
    return [
        suite
        for suite in suites
        if suite not in TLS_1_3
        and suite not in _SIGNALS
        and openssl_name(suite) not in _available_ciphers()
    ]


def restrict(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Permit only these suites (by their Java names). An empty list permits the default suites."""
    if not suites:
        return
    older = [openssl_name(each) for each in suites if each not in TLS_1_3 | _SIGNALS]
    if not TLS_1_3.intersection(suites):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def openssl_name(suite: str) -> str:
    """Convert Java's TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 to OpenSSL's ECDHE-RSA-AES128-SHA256."""
    match = _JAVA_NAME.fullmatch(suite)
    if match is None:
        return suite
    cipher = _KEY_BITS.sub(r"\1\2", match["cipher"]).replace("_CBC_", "_")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"
    exchange = "" if match["exchange"] == "RSA" else match["exchange"] + "_"
    return (exchange + cipher).replace("_", "-")


@cache
def _available_ciphers() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL")
    return frozenset(each["name"] for each in context.get_ciphers())


_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNKNOWN_ISSUER: Final = (7, 18, 19, 20, 21, 27)
"""OpenSSL's codes X509_V_ERR_* that are reported as an unknown issuer: signature failure (the
issuer was renewed with another key), self-signed certificate, self-signed certificate in the chain,
issuer not found (two codes), not trusted.
"""
_WRONG_NAME: Final = (62, 64)

# parts of OpenSSL's error names, with the message; the first part that matches is used
_REFUSALS: Final = (
    (
        "CERTIFICATE_REQUIRED",
        "the broker requires a client certificate: set ssl.keystore.location (or ssl.keystore.key)",
    ),
    (
        "ALERT_UNKNOWN_CA",
        "the broker does not trust the issuer of the client certificate (ssl.keystore.*)",
    ),
    (
        "CERTIFICATE_EXPIRED",
        "the broker reports the client certificate as expired (ssl.keystore.*)",
    ),
    (
        "CERTIFICATE_REVOKED",
        "the broker reports the client certificate as revoked (ssl.keystore.*)",
    ),
    ("ALERT_BAD_CERTIFICATE", "the broker rejects the client certificate (ssl.keystore.*)"),
    ("ALERT_CERTIFICATE_UNKNOWN", "the broker rejects the client certificate (ssl.keystore.*)"),
    (
        "UNSUPPORTED_CERTIFICATE",
        "the broker rejects this kind of client certificate (ssl.keystore.*)",
    ),
    ("ALERT_ACCESS_DENIED", "the broker rejects the client certificate (ssl.keystore.*)"),
    (
        "WRONG_VERSION_NUMBER",
        "the response is not TLS: the listener is probably plain text, check security.protocol",
    ),
    (
        "PROTOCOL_VERSION",
        "no common TLS version: check ssl.enabled.protocols and ssl.protocol",
    ),
    ("UNSUPPORTED_PROTOCOL", "no common TLS version: check ssl.enabled.protocols"),
    (
        "HANDSHAKE_FAILURE",
        "the broker found no common parameters: check ssl.cipher.suites and ssl.enabled.protocols, "
        "and whether it requires a client certificate (ssl.keystore.*)",
    ),
    ("UNRECOGNIZED_NAME", "the broker does not know the requested host name"),
)


def wrap_socket(sock: socket.socket, host: str, settings: SecuritySettings) -> socket.socket:
    """Start TLS on a connected socket if the settings require it, within the socket's timeout.

    Returns the socket to use. Closes `sock` after an error. Raises AuthenticationFailed and
    Unreachable.
    """
    if not settings.needs_tls:
        return sock
    context = _context(settings)
    try:
        return context.wrap_socket(sock, server_hostname=host.rstrip("."))
    except OSError as error:
        raise explain_tls_error(error, host, settings) from error
    finally:
        # this has no effect after success, because the new socket owns the file descriptor
        if sock.fileno() >= 0:
            sock.close()


def check_usable(settings: SecuritySettings) -> None:
    """Raise ssl.SSLError if OpenSSL rejects a key, a certificate or the cipher suites."""
    if settings.needs_tls:
        _context(settings)


def explain_tls_error(error: OSError, host: str, settings: SecuritySettings) -> ClusterError:
    """Return the error to raise for an OSError of a handshake, or of the first read after it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(_untrusted(error, host, settings))
    if isinstance(error, TimeoutError):
        return Unreachable(
            "no response to the TLS handshake in time: the listener may be plain text, check "
            "security.protocol"
        )
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return Unreachable(
            "the broker closed the connection during the TLS handshake: it may be starting or "
            "stopping, or the listener is plain text: check security.protocol"
        )
    reason = error.reason or ""
    for part, sentence in _REFUSALS:
        if part in reason:
            return AuthenticationFailed(f"TLS: {sentence}")
    return AuthenticationFailed(f"the TLS handshake failed: {reason or error}")


def _untrusted(error: ssl.SSLCertVerificationError, host: str, settings: SecuritySettings) -> str:
    code = error.verify_code
    if code in _WRONG_NAME:
        return (
            f"the broker's certificate is not for {host}: connect by a name in the certificate, or "
            "issue a certificate with this name (an empty ssl.endpoint.identification.algorithm "
            "disables the check)"
        )
    if code == _EXPIRED:
        return "a certificate of the broker has expired: renew it at the broker"
    if code == _NOT_YET_VALID:
        return "a certificate of the broker is not valid yet: compare the clocks of both machines"
    if code in _UNKNOWN_ISSUER:
        if settings.ca_pem is None:
            return (
                "this machine does not trust the broker's certificate: "
                "set ssl.truststore.location (or ssl.truststore.certificates) to its issuer"
            )
        return "ssl.truststore.* lacks the issuer of the broker's certificate: add it"
    return f"the broker's certificate is rejected: {error.verify_message}; check ssl.truststore.*"


@lru_cache(maxsize=64)
def _context(settings: SecuritySettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_hostname
    # as in Java: trust every certificate in a truststore, not only self-signed roots
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    versions = [_VERSIONS[each] for each in settings.tls_versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    restrict(context, settings.cipher_suites)
    if settings.ca_pem is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=settings.ca_pem)
    if settings.private_key_pem is not None:
        with secret_file(settings.private_key_pem + (settings.certificate_chain_pem or "")) as path:
            context.load_cert_chain(path)
    return context


@contextmanager
def secret_file(text: str) -> Iterator[str]:
    """Yield the path of a temporary file with this text, because `load_cert_chain` accepts only
    files. The file is in memory if the system supports it.
    """
    if hasattr(os, "memfd_create"):
        with memory_file(text) as descriptor:
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile(mode="w", prefix="twinlog-") as file:  # has mode 0600
            file.write(text)
            file.flush()
            yield file.name
