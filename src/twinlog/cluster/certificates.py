"""Finds the expiry dates of the certificates that a cluster's connections use: client certificates
and truststores.

The certificates are the ones in use, also after a renewal (`security.renewal`). This module reads
no file. The expiry of a client certificate is the earliest one in its chain, because brokers reject
a chain with an expired certificate. For a truststore, the earliest and the last expiry are
reported, because a truststore contains an old and a new certificate while an issuer changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.renewal import known
from twinlog.cluster.security.security_settings import SecuritySettings

DAY_S: Final = 86_400
SOON_S: Final = 14 * DAY_S
"""Time before the expiry of a certificate at which warnings begin, in seconds."""

_END: Final = "-----END CERTIFICATE-----\n"


class CertificatePurpose(StrEnum):
    CLIENT = "client_certificate"
    TRUSTSTORE = "truststore"


_KEYS: Final = {
    CertificatePurpose.CLIENT: (
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
    ),
    CertificatePurpose.TRUSTSTORE: ("ssl.truststore.location", "ssl.truststore.certificates"),
}


class ExpiryUrgency(StrEnum):
    """The urgency of an expiry."""

    FAR = "far"
    SOON = "soon"
    """A certificate expires within `SOON_S`, or one of several in a truststore has expired."""
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateExpiry:
    """The certificate that expires first among all that a cluster's client uses for one purpose."""

    cluster: str
    held: CertificatePurpose
    file: str
    """The file of the certificate, or the configuration key that contains it."""
    subject: str
    ends_at: int
    """When the certificate expires, in seconds since 1970."""
    last_ends_at: int
    """When a truststore's last certificate expires. Equal to `ends_at` for a client certificate."""

    def urgency(self, now_s: float) -> ExpiryUrgency:
        """Return the urgency of the expiry at this time (seconds since 1970)."""
        if self.last_ends_at < now_s:
            return ExpiryUrgency.OVER
        return ExpiryUrgency.SOON if self.ends_at - now_s < SOON_S else ExpiryUrgency.FAR

    def line(self, now_s: float) -> str:
        """Return a message with the certificate's file, subject, expiry date, and what to do."""
        date = datetime.fromtimestamp(self.ends_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        expires = "expired" if self.ends_at < now_s else "expires"
        whose, todo = "the client certificate", "replace the certificate and its key"
        if self.held is CertificatePurpose.TRUSTSTORE:
            whose, todo = "a trusted certificate", "add its successor, or remove the certificate"
        return (
            f"cluster {self.cluster}: {whose} of {self.file} ({self.subject}) {expires} on {date}; "
            f"{todo}. New connections use the new content of the same file without a restart"
        )


class _Dates(NamedTuple):
    subject: str
    ends_at: int
    last_ends_at: int


def certificate_ends(clusters: Iterable[ClusterSettings]) -> tuple[CertificateExpiry, ...]:
    """Return the expiry of all client certificates and truststores that these settings use now,
    without duplicates. Certificates that this machine trusts by default are left out.
    """
    every_end = (
        end
        for settings in clusters
        if settings.security is not None and settings.security.needs_tls
        for end in _ends(settings.alias, known(settings.security))
    )
    return tuple(dict.fromkeys(every_end))


def urgent(
    ends: Iterable[CertificateExpiry], now_s: float | None = None
) -> tuple[tuple[ExpiryUrgency, CertificateExpiry], ...]:
    """Return certificates that expire soon or have expired. `now_s`: Unix time (None: now)."""
    at = time.time() if now_s is None else now_s
    judged = ((end.urgency(at), end) for end in ends)
    return tuple(pair for pair in judged if pair[0] is not ExpiryUrgency.FAR)


def _ends(alias: str, security: SecuritySettings) -> Iterable[CertificateExpiry]:
    pems = (
        (CertificatePurpose.CLIENT, security.certificate_chain_pem),
        (CertificatePurpose.TRUSTSTORE, security.ca_pem),
    )
    for held, pem in pems:
        dates = None if pem is None else _dates(pem)
        if dates is None:
            continue
        last = dates.last_ends_at if held is CertificatePurpose.TRUSTSTORE else dates.ends_at
        yield CertificateExpiry(
            cluster=alias,
            held=held,
            file=_file(security, held),
            subject=dates.subject,
            ends_at=dates.ends_at,
            last_ends_at=last,
        )


def _file(security: SecuritySettings, held: CertificatePurpose) -> str:
    # reversed, so that the first of several files of a key is kept
    paths = dict(reversed(security.files))
    return next((paths[key] for key in _KEYS[held] if key in paths), _KEYS[held][1])


@lru_cache(maxsize=256)
def _dates(pem: str) -> _Dates | None:
    """Return the earliest and the last expiry, or None if no certificate can be read. OpenSSL
    accepts some certificates that the `cryptography` library rejects as malformed; these are left
    out.
    """
    from cryptography import x509

    certificates = []
    for block in pem.split(_END)[:-1]:
        try:
            certificate = x509.load_pem_x509_certificate((block + _END).encode())
            ends_at = int(certificate.not_valid_after_utc.timestamp())
            certificates.append((ends_at, certificate.subject.rfc4514_string()))
        except (ValueError, x509.InvalidVersion):
            continue
    if not certificates:
        return None
    ends_at, subject = min(certificates)
    return _Dates(subject, ends_at, max(certificates)[0])
