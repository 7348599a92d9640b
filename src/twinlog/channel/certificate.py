"""The channel's certificate: made for one run, and known to its lanes by fingerprint alone.

An authority would need a place to keep its key and a way to spread its certificate; the Spark job
that starts a lane already brings it 32 trustworthy bytes.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_server_context() -> tuple[ssl.SSLContext, str]:
    """A TLS context with a fresh key and certificate, and the certificate's SHA-256 in hex."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "twinlog driver")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # lanes look at the fingerprint only; the dates are for whoever looks at the wire
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no lane resumes a session
    _load(context, certificate, key)
    return context, certificate.fingerprint(hashes.SHA256()).hex()


def _load(
    context: ssl.SSLContext, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    # ssl reads keys from files only: one file, readable by us alone, for the time of this call
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    with tempfile.TemporaryDirectory(prefix="twinlog-channel-") as folder:
        path = Path(folder) / "driver.pem"
        path.write_bytes(pem)
        context.load_cert_chain(path)
