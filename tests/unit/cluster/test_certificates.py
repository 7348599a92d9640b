"""When certificates expire: which expiry is reported, and how urgent it is."""

from __future__ import annotations

import datetime

import pytest

from tests.support.certificates import Issued, authority, of_version_2
from tests.support.settings import settings_for
from twinlog.cluster.certificates import (
    DAY_S,
    CertificateExpiry,
    CertificatePurpose,
    ExpiryUrgency,
    certificate_ends,
    urgent,
)
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_settings import SecuritySettings

CA = authority("CA", days=(-30, 300))
NEXT_CA = authority("Next CA", days=(-30, 3000))
ISSUER = CA.issue("Issuer", days=(-1, 5), is_authority=True)
LEAF = ISSUER.issue("mirror", days=(-1, 90))


def entered_with(**security: object) -> ClusterSettings:
    settings = SecuritySettings(protocol="SSL", **security)  # type: ignore[arg-type]
    return ClusterSettings(alias="A", bootstrap=settings_for("host:1").bootstrap, security=settings)


def end_of(issued: Issued) -> int:
    return int(issued.certificate.not_valid_after_utc.timestamp())


@pytest.mark.parametrize(
    ("pem", "first", "last"),
    [
        (CA.pem, CA, CA),
        (CA.pem + NEXT_CA.pem, CA, NEXT_CA),
        (NEXT_CA.pem + CA.pem, CA, NEXT_CA),
    ],
    ids=["one", "in-order", "reversed"],  # explicit IDs, because the texts differ between processes
)
def test_earliest_expiry_of_a_truststore_is_reported(pem: str, first: Issued, last: Issued) -> None:
    (found,) = certificate_ends([entered_with(ca_pem=pem)])
    assert found.held is CertificatePurpose.TRUSTSTORE
    assert (found.ends_at, found.last_ends_at) == (end_of(first), end_of(last))
    assert found.subject == f"CN={first.certificate.subject.rfc4514_string()[3:]}"


def test_certificate_of_an_unsupported_version_is_left_out() -> None:
    """OpenSSL accepts such a certificate in a truststore, so it is no error."""
    (found,) = certificate_ends([entered_with(ca_pem=of_version_2(CA) + NEXT_CA.pem)])
    assert found.ends_at == end_of(NEXT_CA)


def test_the_first_expiry_in_a_chain_is_reported() -> None:
    (found,) = certificate_ends(
        [entered_with(certificate_chain_pem=LEAF.pem + ISSUER.pem, private_key_pem="-")]
    )
    assert (found.held, found.subject) == (CertificatePurpose.CLIENT, "CN=Issuer")
    assert found.ends_at == found.last_ends_at == end_of(ISSUER)


@pytest.mark.parametrize(
    "settings",
    [
        settings_for("host:1"),
        entered_with(),
        entered_with(ca_pem="-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ClusterSettings(
            alias="A",
            bootstrap=settings_for("host:1").bootstrap,
            security=SecuritySettings(protocol="SASL_PLAINTEXT", ca_pem=CA.pem),
        ),
    ],
)
def test_nothing_is_reported_without_configured_certificates(settings: ClusterSettings) -> None:
    assert certificate_ends([settings]) == ()


def test_a_certificate_of_several_clients_is_reported_once() -> None:
    settings = entered_with(ca_pem=CA.pem)
    assert len(certificate_ends([settings, settings])) == 1


NOW = 1_800_000_000


def an_end(in_days: float, last_in_days: float | None = None) -> CertificateExpiry:
    last = in_days if last_in_days is None else last_in_days
    return CertificateExpiry(
        cluster="A",
        held=CertificatePurpose.CLIENT if last_in_days is None else CertificatePurpose.TRUSTSTORE,
        file="me.pem",
        subject="CN=mirror",
        ends_at=int(NOW + in_days * DAY_S),
        last_ends_at=int(NOW + last * DAY_S),
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (an_end(15), ExpiryUrgency.FAR),
        (an_end(14), ExpiryUrgency.FAR),
        (an_end(13.9), ExpiryUrgency.SOON),
        (an_end(0), ExpiryUrgency.SOON),
        (an_end(-0.1), ExpiryUrgency.OVER),
        (an_end(13, 300), ExpiryUrgency.SOON),
        (
            an_end(-1, 300),
            ExpiryUrgency.SOON,
        ),  # while issuers are changed, the other certificate is valid
        (an_end(-2, -1), ExpiryUrgency.OVER),
    ],
)
def test_expiry_is_urgent_fourteen_days_before(
    end: CertificateExpiry, expected: ExpiryUrgency
) -> None:
    assert end.urgency(NOW) is expected
    assert urgent([end], NOW) == (() if expected is ExpiryUrgency.FAR else ((expected, end),))


def test_the_line_names_file_subject_and_date() -> None:
    line = an_end(3).line(NOW)
    date = datetime.datetime.fromtimestamp(NOW + 3 * DAY_S, datetime.UTC)
    for part in ("cluster A", "me.pem", "CN=mirror", f"expires on {date:%Y-%m-%d %H:%M} UTC"):
        assert part in line
    assert "expired on" in an_end(-3).line(NOW)


def test_the_file_of_the_key_or_else_the_key_is_named() -> None:
    files = (
        ("sasl.jaas.config: ssl.truststore.location", "endpoint.pem"),
        ("ssl.truststore.location", "ca.pem"),
    )
    (found,) = certificate_ends([entered_with(ca_pem=CA.pem, files=files)])
    assert found.file == "ca.pem"
    (found,) = certificate_ends([entered_with(ca_pem=CA.pem)])
    assert found.file == "ssl.truststore.certificates"
