"""Credentials and trust settings of one cluster, as plain values that need no file.

The driver reads keystores and key files, and reads them again when they are renewed (`renewal`).
The settings are sent to lanes over the channel as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""The default of ssl.enabled.protocols, as in Java. OpenSSL and Java disable older versions."""

_SECRETS: Final = frozenset(
    {"private_key_pem", "password", "client_secret", "fixed_token", "unsecured_claims"}
)
_LONG: Final = frozenset({"ca_pem", "certificate_chain_pem"})


def _masked(settings: SecuritySettings | OAuthSettings) -> str:
    """Return a repr for logs. Secrets are shown as `***`, certificates as their number. Fields with
    their default value are left out.
    """
    parts = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value == field.default:
            continue
        if field.name in _SECRETS:
            text = "***"
        elif field.name in _LONG:
            text = f"<{value.count('BEGIN CERTIFICATE')} certificates>"
        else:
            text = repr(value)
        parts.append(f"{field.name}={text}")
    return f"{type(settings).__name__}({', '.join(parts)})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OAuthSettings:
    """The source of OAUTHBEARER tokens: an endpoint, a fixed token, or (tests) unsigned tokens."""

    token_endpoint_url: str | None = None
    """The URL of the endpoint for the client credentials grant, or None."""
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None
    is_header_urlencoded: bool = False
    """True if client ID and secret are form-encoded in the header. RFC 6749 requires the encoding,
    but Kafka's default is False.
    """
    endpoint_ca_pem: str | None = None
    timeout_ms: int = 10_000
    refresh_share: float = 0.8
    """The share of a token's lifetime after which it is renewed."""
    fixed_token: str | None = None
    unsecured_claims: str | None = None
    """Claims of an unsigned token as JSON, without `iat` and `exp`, or None for other tokens."""
    unsecured_lifetime_s: int = 3_600
    extensions: tuple[tuple[str, str], ...] = ()

    __repr__ = _masked


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SecuritySettings:
    """The TLS and SASL settings for connections to one cluster."""

    protocol: str = PLAINTEXT
    ca_pem: str | None = None
    """The trusted certificates, or None for the default ones of the machine."""
    certificate_chain_pem: str | None = None
    """The client's certificate, followed by its issuers, or None."""
    private_key_pem: str | None = None
    """The client's private key as PKCS#8 without password, or None."""
    check_hostname: bool = True
    tls_versions: tuple[str, ...] = TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()
    """Permitted cipher suites, by Java (IANA) names. If empty, OpenSSL's default list is used."""
    sasl_mechanism: str | None = None
    username: str = ""
    password: str = ""
    is_delegation_token: bool = False
    """True if SCRAM uses a delegation token (KIP-48). Its ID is then the user name."""
    oauth: OAuthSettings | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Key and path of each file that the settings were read from. Not sent to lanes."""

    __repr__ = _masked

    @property
    def needs_tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def needs_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)
