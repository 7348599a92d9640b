"""Who we are to one cluster and whom we trust, as plain values: no file is needed after loading.

The driver reads keystores and key files, and again when they are renewed (`renewal`); what is here
travels to lanes over the channel, as JSON.
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
"""Java's default of ssl.enabled.protocols; what is older, both sides have switched off."""

_SECRETS: Final = frozenset(
    {"private_key_pem", "password", "client_secret", "fixed_token", "unsecured_claims"}
)
_LONG: Final = frozenset({"ca_pem", "certificate_chain_pem"})


def _masked(settings: SecuritySettings | OAuthSettings) -> str:
    """A repr for logs: secrets as stars, certificates as their count, what is not set left out."""
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
    """Where OAUTHBEARER tokens come from: an endpoint, a fixed token, or (tests only) ourselves."""

    token_endpoint_url: str | None = None
    """Asked with the client credentials grant."""
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None
    is_header_urlencoded: bool = False
    """RFC 6749 wants id and secret form-encoded in the header; Kafka by default not."""
    endpoint_ca_pem: str | None = None
    timeout_ms: int = 10_000
    refresh_share: float = 0.8
    """A token is renewed when this share of its life has passed."""
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
    """None trusts what this machine trusts."""
    certificate_chain_pem: str | None = None
    """Our own certificate first, then its issuers."""
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
    """SCRAM with a delegation token (KIP-48): the user name is the token's id."""
    oauth: OAuthSettings | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Key and path of each file that all of this was read from; lanes are not told."""

    __repr__ = _masked

    @property
    def needs_tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def needs_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)
