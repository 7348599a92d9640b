"""The key files of a sandbox cluster: a certificate authority, and certificates of brokers and
clients.

The keys exist in every format that Kafka's Java clients read: PEM (key plain and encrypted),
PKCS#12 with and without a password, and JKS, which Java's own keytool creates.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from twinlog.errors import EnvironmentMissing
from twinlog.java import find_java

STORE_PASSWORD = "changeit"  # noqa: S105 (of throw-away keys; Java's own default)

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """Paths of the key files. `identity` files have a client's key and certificate."""

    folder: Path

    @property
    def authority_pem(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server_pem(self) -> Path:
        return self.folder / "server.pem"

    def identity_pem(self, user: str, *, encrypted: bool = False) -> Path:
        return self.folder / f"{user}{'-encrypted' if encrypted else ''}.pem"

    def identity_p12(self, user: str, *, password: bool = True) -> Path:
        return self.folder / f"{user}{'' if password else '-open'}.p12"

    def trust_p12(self, *, password: bool = True) -> Path:
        return self.folder / f"ca{'' if password else '-open'}.p12"

    def identity_jks(self, user: str) -> Path:
        return self._as_jks(self.identity_p12(user))

    @property
    def trust_jks(self) -> Path:
        return self._as_jks(self.trust_p12())

    def _as_jks(self, store: Path) -> Path:
        jks = store.with_suffix(".jks")
        if not jks.exists():  # created on demand, because each run of keytool starts a JVM
            _convert_to_jks(store, jks)
        return jks


@dataclass(frozen=True, slots=True)
class _Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self, how: KeySerializationEncryption | None = None) -> bytes:
        """Return key and certificate as one text, as in Kafka's PEM keystores."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how or NoEncryption())
        return key + self.certificate.public_bytes(Encoding.PEM)

    def p12(self, name: str, how: KeySerializationEncryption) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, None, how
        )


def make_key_files(folder: Path, *, hosts: tuple[str, ...], clients: tuple[str, ...]) -> KeyFiles:
    """Create new keys in the folder: for brokers reached as `hosts`, and for each client name."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = KeyFiles(folder=folder)
    locked = BestAvailableEncryption(STORE_PASSWORD.encode())
    ca = _issue("Twinlog sandbox CA", None, ())
    files.authority_pem.write_bytes(ca.certificate.public_bytes(Encoding.PEM))
    trusted = [pkcs12.PKCS12Certificate(ca.certificate, b"ca")]
    files.trust_p12().write_bytes(pkcs12.serialize_java_truststore(trusted, locked))
    files.trust_p12(password=False).write_bytes(
        pkcs12.serialize_java_truststore(trusted, NoEncryption())
    )
    files.server_pem.write_bytes(_issue("broker", ca, hosts).pem())
    for client in clients:
        issued = _issue(client, ca, ())
        files.identity_pem(client).write_bytes(issued.pem())
        files.identity_pem(client, encrypted=True).write_bytes(issued.pem(locked))
        files.identity_p12(client).write_bytes(issued.p12(client, locked))
        files.identity_p12(client, password=False).write_bytes(issued.p12(client, NoEncryption()))
    return files


def _issue(name: str, issuer: _Issued | None, hosts: tuple[str, ...]) -> _Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 365 * _DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    signer = issuer.key if issuer else key
    return _Issued(builder.sign(signer, hashes.SHA256()), key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _convert_to_jks(store: Path, jks: Path) -> None:
    command = [_keytool(), "-importkeystore", "-noprompt", "-srckeystore", str(store)]
    command += ["-srcstorepass", STORE_PASSWORD, "-destkeystore", str(jks)]
    command += ["-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if answer.returncode != 0:
        raise EnvironmentMissing(f"keytool could not create {jks}: {answer.stdout.strip()}")


@functools.cache
def _keytool() -> str:
    beside = find_java().resolve().parent / "keytool"
    found = str(beside) if beside.exists() else shutil.which("keytool")
    if found is None:
        raise EnvironmentMissing(
            "Java's keytool is missing, which creates JKS files; install a full JRE"
        )
    return found
