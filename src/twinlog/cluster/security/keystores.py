"""Converts keystores and truststores of Java clients (JKS, PKCS#12, PEM) to PEM text.

The rules are Java's, so that the same file means the same:

- The content decides between JKS and PKCS#12, because Java reads both under either type
  (`keystore.type.compat`). PEM must be declared as the type.
- Trusted are every certificate entry, and the first certificate of every key entry.
- The client uses the first private key of a file.

There is one harmless difference: Kafka accepts PEM keys only as PKCS#8, and this module also other
PEM keys.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinlog.cluster.security import jks
from twinlog.cluster.security.jks import BrokenStore, WrongKeyPassword, WrongPassword

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_PEM_BLOCK: Final = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)-+(.*?)-+END\s+\1-+", re.DOTALL)
_LINE_CHARACTERS: Final = 64
_PKCS12_START: Final = 0x30
_PEM_START: Final = b"-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Identity:
    """A private key (PKCS#8 PEM without password) and its certificate chain, its own one first."""

    private_key_pem: str
    certificate_chain_pem: str


def trusted_from_store(data: bytes, password: str | None) -> str:
    """Return the trusted certificates of a JKS or PKCS#12 file, often without a password."""
    if data.startswith(jks.MAGIC):
        store = jks.read_jks(data, password)
        return _trusted((*store.certificates, *(key.chain[0] for key in store.keys if key.chain)))
    content = _load_pkcs12(data, password)
    return _trusted(_certificates_of(content))


def trusted_from_pem(text: str) -> str:
    """Return the certificates in a PEM text, in the usual form."""
    return _trusted(_certificates_in(text))


def identity_from_store(data: bytes, store_password: str, key_password: str | None) -> Identity:
    """Return the first private key of a JKS or PKCS#12 file, and its chain."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    if not data.startswith(jks.MAGIC):
        # such a file has one password: keytool accepts no different one for its key
        content = _load_pkcs12(data, store_password)
        if content.key is None:
            raise BrokenStore("it contains no private key")
        return _identity(content.key, _certificates_of(content))
    store = jks.read_jks(data, store_password)
    if not store.keys:
        raise BrokenStore("it contains no private key")
    entry = store.keys[0]
    der = jks.decrypt_key(entry, store_password if key_password is None else key_password)
    try:
        key = load_der_private_key(der, None)
    except ValueError:
        raise BrokenStore(f"the key {entry.alias!r} is of a kind that cannot be read") from None
    return _identity(key, entry.chain)


def identity_from_pem(key_text: str, chain_text: str, key_password: str | None) -> Identity:
    """Return a private key, decrypted with `key_password`, and its chain. A text may have both."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    blocks = [text for label, text in _blocks(key_text) if label.endswith("PRIVATE KEY")]
    if not blocks:
        raise BrokenStore("it contains no '-----BEGIN PRIVATE KEY-----' block")
    is_encrypted = "ENCRYPTED" in blocks[0]
    if is_encrypted and key_password is None:
        raise WrongKeyPassword("of the key is not given, and the key is encrypted")
    secret = key_password.encode() if is_encrypted and key_password is not None else None
    try:
        key = load_pem_private_key(blocks[0].encode(), secret)
    except ValueError:
        if is_encrypted:
            raise WrongKeyPassword("of the key is wrong") from None
        raise BrokenStore("its private key cannot be read; PKCS#8 is expected") from None
    return _identity(key, _certificates_in(chain_text))


def _identity(key: PrivateKeyTypes, certificates: Sequence[bytes]) -> Identity:
    """Return the key, its certificate, and the issuers of that in order. Raises BrokenStore."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        parsed = [x509.load_der_x509_certificate(each) for each in certificates]
    except ValueError:
        raise BrokenStore("a certificate of its chain cannot be read") from None
    own = next((each for each in parsed if each.public_key() == key.public_key()), None)
    if own is None:
        raise BrokenStore("none of its certificates belongs to its private key")
    chain = [own]
    while (last := chain[-1]).issuer != last.subject:
        issuer = next((each for each in parsed if each.subject == last.issuer), None)
        if issuer is None or issuer in chain:
            break
        chain.append(issuer)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Identity(
        private_key_pem=key_pem.decode(),
        certificate_chain_pem=_pem(
            [each.public_bytes(serialization.Encoding.DER) for each in chain]
        ),
    )


def _load_pkcs12(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    if data.lstrip().startswith(_PEM_START):
        raise BrokenStore("it is a PEM file: set the store's type to PEM")
    if not data or data[0] != _PKCS12_START:
        raise BrokenStore("it is neither a JKS nor a PKCS#12 file")
    try:
        with warnings.catch_warnings():
            # older Java tools write BER, which the library reads, but warns about
            warnings.simplefilter("ignore", UserWarning)
            if password is None:
                return load_pkcs12(jks.without_mac(data), None)
            return load_pkcs12(data, password.encode())
    except UnsupportedAlgorithm:
        raise BrokenStore(
            "it is encrypted with an algorithm that OpenSSL does not support"
        ) from None
    except ValueError:
        if password is None:
            raise WrongPassword("of the store is not given, and the store is encrypted") from None
        raise WrongPassword("of the store is wrong, or the file is damaged") from None


def _certificates_of(store: PKCS12KeyAndCertificates) -> list[bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding

    all_of_them = [*([store.cert] if store.cert else []), *store.additional_certs]
    return [each.certificate.public_bytes(Encoding.DER) for each in all_of_them]


def _trusted(certificates: Sequence[bytes]) -> str:
    if not certificates:
        raise BrokenStore("it contains no trusted certificate")
    return _pem(certificates)


def _pem(certificates: Sequence[bytes]) -> str:
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in dict.fromkeys(certificates))


def _certificates_in(text: str) -> list[bytes]:
    certificates = []
    for label, block in _blocks(text):
        if label in ("CERTIFICATE", "X509 CERTIFICATE"):
            body = "".join(block.splitlines()[1:-1])
            try:
                certificates.append(base64.b64decode(body, validate=True))
            except binascii.Error:
                raise BrokenStore("one of its CERTIFICATE blocks is damaged") from None
    return certificates


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield label and text of each PEM block. A .properties file may join its lines with spaces."""
    for match in _PEM_BLOCK.finditer(text):
        label, body = match[1].strip(), match[2]
        if ":" not in body:  # no headers, as in the older encrypted form
            body = "\n".join(textwrap.wrap("".join(body.split()), _LINE_CHARACTERS))
        yield label, f"-----BEGIN {label}-----\n{body.strip()}\n-----END {label}-----\n"
