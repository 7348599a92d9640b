"""Temporary certificates for tests: certificate authorities, and certificates that they sign."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.encrypted_key_pem(None)

    def encrypted_key_pem(self, password: str | None) -> str:
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            how = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = (),
        days: tuple[int, int] = (-1, 10),
        is_authority: bool = False,
    ) -> Issued:
        """Return a certificate signed by this one. `days`: begin and end of its validity, in days
        from now.
        """
        return _make(name, self, hosts=hosts, days=days, is_authority=is_authority)


def authority(name: str = "Test Authority", days: tuple[int, int] = (-30, 30)) -> Issued:
    """Return a self-signed certificate that can sign others."""
    return _make(name, None, hosts=(), days=days, is_authority=True)


@functools.cache
def shared_authority() -> Issued:
    """Return a certificate authority that all tests of the process share."""
    return authority()


def of_version_2(issued: Issued) -> str:
    """Return the certificate as PEM, with the version number of X.509 v2, which OpenSSL accepts and
    the `cryptography` library does not.
    """
    der = issued.certificate.public_bytes(Encoding.DER)
    version_3, version_2 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01"
    return ssl.DER_cert_to_PEM_cert(der.replace(version_3, version_2, 1))


def _make(
    name: str,
    issuer: Issued | None,
    *,
    hosts: Sequence[str],
    days: tuple[int, int],
    is_authority: bool,
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    return Issued(certificate=certificate, key=key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
