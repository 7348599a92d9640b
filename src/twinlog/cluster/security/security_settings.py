"""Credentials and trust settings of one cluster, as plain values that need no file.

The driver reads keystores and key files, and reads them again when they are renewed (`renewal`).
These values are sent to lanes over the channel as JSON.
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
"""Java's default of ssl.enabled.protocols. Older versions are disabled on both sides."""

_SECRETS: Final = frozenset(
    {"private_key_pem", "password", "client_secret", "fixed_token", "unsecured_claims"}
)
_LONG: Final = frozenset({"ca_pem", "certificate_chain_pem"})


def _masked(settings: SecuritySettings | OAuthSettings) -> str:
    """Return a repr for logs. Secrets are stars, certificates are counted, and fields with their
    default are left out.
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
    """The source of OAUTHBEARER tokens: an endpoint, a fixed token, or the client
    itself (tests).
    """

    token_endpoint_url: str | None = None
    """The endpoint for the client credentials grant."""
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None
    is_header_urlencoded: bool = False
    """Whether ID and secret are form-encoded in the header. RFC 6749 requires it, but Kafka's
    default is not to.
    """
    endpoint_ca_pem: str | None = None
    timeout_ms: int = 10_000
    refresh_share: float = 0.8
    """The share of its lifetime after which a token is renewed."""
    fixed_token: str | None = None
    unsecured_claims: str | None = None
    """Claims of an unsigned token as JSON, without `iat` and `exp`."""
    unsecured_lifetime_s: int = 3_600
    extensions: tuple[tuple[str, str], ...] = ()

    __repr__ = _masked


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SecuritySettings:
    """All that TLS and SASL need for connections to one cluster."""

    protocol: str = PLAINTEXT
    ca_pem: str | None = None
    """The trusted certificates, or None for those of this machine."""
    certificate_chain_pem: str | None = None
    """The client's certificate, then its issuers."""
    private_key_pem: str | None = None
    """PKCS#8 without password."""
    check_hostname: bool = True
    tls_versions: tuple[str, ...] = TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()
    """Cipher suites by their Java (IANA) names. Empty for the default list."""
    sasl_mechanism: str | None = None
    username: str = ""
    password: str = ""
    is_delegation_token: bool = False
    """Whether SCRAM uses a delegation token (KIP-48), whose ID is the user name."""
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
