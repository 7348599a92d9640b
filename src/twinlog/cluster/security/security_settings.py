"""The credentials and trust settings for one cluster, as plain values: no file is needed after
loading.

The driver reads keystores and key files, and reads them again when they are renewed (`renewal`).
These values are sent to lanes over the channel, as JSON.
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
    """Return a repr for logs: secrets as stars, certificates as their count, without unset
    fields.
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
    """The source of OAUTHBEARER tokens: an endpoint, a fixed token, or (in tests only) the client
    itself.
    """

    token_endpoint_url: str | None = None
    """Queried with the client credentials grant."""
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None
    is_header_urlencoded: bool = False
    """RFC 6749 requires ID and secret to be form-encoded in the header. Kafka by default does not
    encode them.
    """
    endpoint_ca_pem: str | None = None
    timeout_ms: int = 10_000
    refresh_share: float = 0.8
    """A token is renewed when this share of its lifetime has passed."""
    fixed_token: str | None = None
    unsecured_claims: str | None = None
    """Claims of an unsigned token as JSON, without its times."""
    unsecured_lifetime_s: int = 3_600
    extensions: tuple[tuple[str, str], ...] = ()

    __repr__ = _masked


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SecuritySettings:
    """Everything that TLS and SASL need for the connections to one cluster."""

    protocol: str = PLAINTEXT
    ca_pem: str | None = None
    """None: use this machine's trusted certificates."""
    certificate_chain_pem: str | None = None
    """The client's certificate first, then its issuers."""
    private_key_pem: str | None = None
    """PKCS#8 without password."""
    check_hostname: bool = True
    tls_versions: tuple[str, ...] = TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()
    """Java's (IANA's) names; empty is the default list."""
    sasl_mechanism: str | None = None
    username: str = ""
    password: str = ""
    is_delegation_token: bool = False
    """SCRAM with a delegation token (KIP-48): the user name is the token's ID."""
    oauth: OAuthSettings | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Key and path of each file from which the settings were read. Not sent to lanes."""

    __repr__ = _masked

    @property
    def needs_tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def needs_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)
