"""Converts keystores and truststores of Java clients (JKS, PKCS#12, PEM) to PEM text.

The rules are those of Java, so that a file has the same meaning for both:

- The content shows if a file is JKS or PKCS#12, because Java reads both formats with either type
  (`keystore.type.compat`). For PEM, the type must be set.
- The trusted certificates are all certificate entries, and the first certificate of every key
  entry.
- The client uses the first private key of a file.

There is one harmless difference: Kafka accepts PEM keys only as PKCS#8, but this module also in
other encodings.

**JKS** is Java's own keystore format. Older tools write stores in this format, and some JVMs have
their trusted certificates in it:

    u4 magic FEEDFEED, u4 version 2, u4 entries
    entry: u4 tag, utf alias, u8 created ms
       tag 1 private key:  u4 length, EncryptedPrivateKeyInfo; u4 certificates, each as in tag 2
       tag 2 certificate:  utf type, u4 length, DER
    SHA-1 of the password (UTF-16BE), "Mighty Aphrodite" and everything before

*Problem.* Users of MirrorMaker 2 have such files, and OpenSSL cannot read them. If users had to
convert them to PKCS#12, configurations that work with MirrorMaker 2 would fail here.

*Rules.* Certificates are not encrypted, so they can be read without a password. As in Java, the
digest at the end of the file is checked only if a password is given. A private key is encrypted
with Sun's own algorithm:

    salt (20 bytes) | key XOR keystream | SHA-1 of password and key
    keystream: S1 = SHA-1(password, salt), S2 = SHA-1(password, S1), ...

SHA-1 in this form is weak, but the format requires it. It protects only the user's file, and no
connection. Every length is checked against the rest of the file, because a wrong path may lead to
any file.

*Rejected alternative.* The existing Python library for JKS needs a C compiler when it is installed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import io
import re
import ssl
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


MAGIC: Final = b"\xfe\xed\xfe\xed"

_PRIVATE_KEY: Final = 1
_CERTIFICATE: Final = 2
_WHITENING: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_SUN_KEY_PROTECTOR: Final = bytes.fromhex("060a2b060104012a02110101")
"""Object identifier 1.3.6.1.4.1.42.2.17.1.1 of Sun's algorithm, as DER."""
_DER_SEQUENCE: Final = 0x30
_DER_OCTETS: Final = 0x04


class BrokenStore(Exception):
    """The file is not a readable store. The text is the reason, and contains no secret."""


class WrongPassword(Exception):
    """A password is missing or wrong. The text continues a message after 'the password'."""


class WrongKeyPassword(WrongPassword):
    """The password of the private key, not that of the store, is missing or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateKeyEntry:
    """An encrypted private key and its certificate chain (DER), its own certificate first."""

    alias: str
    encrypted: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaStore:
    """The entries of a JKS file, in the order of the file."""

    certificates: tuple[bytes, ...]
    keys: tuple[PrivateKeyEntry, ...]


def read_jks(data: bytes, password: str | None) -> JavaStore:
    """Return all entries of a JKS file. Checks the file's digest if a password is given.

    Raises BrokenStore and WrongPassword.
    """
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise BrokenStore("it does not begin like a JKS file")
    version = reader.number()
    if version != 2:
        raise BrokenStore(f"its format version is {version}, but only version 2 is supported")
    if password is not None:
        _check_digest(data, password)
    certificates: list[bytes] = []
    keys: list[PrivateKeyEntry] = []
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.take(8)
        if tag == _PRIVATE_KEY:
            encrypted = reader.block()
            chain = tuple(reader.certificate() for _ in range(reader.number()))
            keys.append(PrivateKeyEntry(alias=alias, encrypted=encrypted, chain=chain))
        elif tag == _CERTIFICATE:
            certificates.append(reader.certificate())
        else:
            raise BrokenStore(f"its entry {alias!r} is of the unknown kind {tag}")
    return JavaStore(certificates=tuple(certificates), keys=tuple(keys))


def decrypt_key(entry: PrivateKeyEntry, password: str) -> bytes:
    """Return the private key as PKCS#8 DER. Raises WrongKeyPassword and BrokenStore."""
    content = _read_der(entry.encrypted, 0, _DER_SEQUENCE)[0]
    algorithm, at = _read_der(content, 0, _DER_SEQUENCE)
    if not algorithm.startswith(_SUN_KEY_PROTECTOR):
        raise BrokenStore(f"the key {entry.alias!r} is encrypted with an unknown algorithm")
    cipher = _read_der(content, at, _DER_OCTETS)[0]
    salt, masked_key = cipher[:_DIGEST_BYTES], cipher[_DIGEST_BYTES:-_DIGEST_BYTES]
    secret = password.encode("utf-16-be")
    stream, block = bytearray(), salt
    while len(stream) < len(masked_key):
        block = _sha1(secret + block)
        stream += block
    plain = bytes(a ^ b for a, b in zip(masked_key, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + plain), cipher[-_DIGEST_BYTES:]):
        raise WrongKeyPassword(f"of the key {entry.alias!r} is wrong")
    return plain


def without_mac(data: bytes) -> bytes:
    """Return a PKCS#12 file without its MAC. (PFX is {version, authSafe, macData OPTIONAL}.)

    Java reads unencrypted certificates in a PKCS#12 file without a password. OpenSSL would first
    check the MAC, for which it needs the password.
    """
    content = _read_der(data, 0, _DER_SEQUENCE)[0]
    version_end = _read_der(content, 0, 0x02)[1]
    kept = content[: _read_der(content, version_end, _DER_SEQUENCE)[1]]
    size = len(kept).to_bytes((len(kept).bit_length() + 7) // 8 or 1, "big")
    length = size if len(kept) < 0x80 else bytes((0x80 | len(size),)) + size
    return bytes((_DER_SEQUENCE,)) + length + kept


def _check_digest(data: bytes, password: str) -> None:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    expected = _sha1(password.encode("utf-16-be") + _WHITENING + body)
    if not hmac.compare_digest(expected, digest):
        raise WrongPassword("of the store is wrong, or the file is damaged")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _read_der(data: bytes, position: int, tag: int) -> tuple[bytes, int]:
    """Return the content of the DER element at `position`, and the position after it. Raises
    BrokenStore if the element has another tag.
    """
    if len(data) < position + 2 or data[position] != tag:
        raise BrokenStore("its ASN.1 structure is damaged")
    size, position = data[position + 1], position + 2
    if size & 0x80:
        count = size & 0x7F
        size, position = int.from_bytes(data[position : position + count], "big"), position + count
    if position + size > len(data):
        raise BrokenStore("its ASN.1 structure is truncated")
    return data[position : position + size], position + size


class _Reader(io.BytesIO):
    """Reads the fields of a JKS file in order. Checks that each field is within the file."""

    def take(self, size: int) -> bytes:
        taken = self.read(size)
        if len(taken) < size:
            raise BrokenStore("the file is truncated")
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def block(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        # Java's modified UTF-8 differs from UTF-8 only for NUL and characters beyond the basic
        # plane
        return self.take(int.from_bytes(self.take(2))).decode("utf-8", "replace")

    def certificate(self) -> bytes:
        self.text()
        return self.block()


_PEM_BLOCK: Final = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)-+(.*?)-+END\s+\1-+", re.DOTALL)
_LINE_CHARACTERS: Final = 64
_PKCS12_START: Final = 0x30
_PEM_START: Final = b"-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Identity:
    """A private key (PKCS#8 PEM, no password) and its chain, beginning with its own certificate."""

    private_key_pem: str
    certificate_chain_pem: str


def trusted_from_store(data: bytes, password: str | None) -> str:
    """Return a JKS or PKCS#12 file's trusted certificates. Unencrypted ones need no password."""
    if data.startswith(MAGIC):
        store = read_jks(data, password)
        return _trusted((*store.certificates, *(key.chain[0] for key in store.keys if key.chain)))
    content = _load_pkcs12(data, password)
    return _trusted(_certificates_of(content))


def trusted_from_pem(text: str) -> str:
    """Return the certificates of a PEM text as normalized PEM, without duplicates."""
    return _trusted(_certificates_in(text))


def identity_from_store(data: bytes, store_password: str, key_password: str | None) -> Identity:
    """Return the first private key of a JKS or PKCS#12 file with its certificate chain."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    if not data.startswith(MAGIC):
        # a PKCS#12 file has one password, because keytool accepts no other password for the key
        content = _load_pkcs12(data, store_password)
        if content.key is None:
            raise BrokenStore("it contains no private key")
        return _identity(content.key, _certificates_of(content))
    store = read_jks(data, store_password)
    if not store.keys:
        raise BrokenStore("it contains no private key")
    entry = store.keys[0]
    der = decrypt_key(entry, store_password if key_password is None else key_password)
    try:
        key = load_der_private_key(der, None)
    except (ValueError, UnsupportedAlgorithm):
        raise BrokenStore(f"the key {entry.alias!r} is of a kind that cannot be read") from None
    return _identity(key, entry.chain)


def identity_from_pem(key_text: str, chain_text: str, key_password: str | None) -> Identity:
    """Return a private key, decrypted with `key_password` if necessary, and its certificate chain.
    `key_text` and `chain_text` may be equal.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
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
    except UnsupportedAlgorithm:
        raise BrokenStore("its private key is of a kind that cannot be read") from None
    except ValueError:
        if is_encrypted:
            raise WrongKeyPassword("of the key is wrong") from None
        raise BrokenStore("its private key cannot be read; PKCS#8 is expected") from None
    return _identity(key, _certificates_in(chain_text))


def _identity(key: PrivateKeyTypes, certificates: Sequence[bytes]) -> Identity:
    """Return the key with its certificate chain: its own certificate, then each issuer. Raises
    BrokenStore if no certificate belongs to the key.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        parsed = [x509.load_der_x509_certificate(der) for der in certificates]
        own = next((der for der in parsed if der.public_key() == key.public_key()), None)
    except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm):
        raise BrokenStore("a certificate of its chain cannot be read") from None
    if own is None:
        raise BrokenStore("none of its certificates belongs to its private key")
    chain = [own]
    while (last := chain[-1]).issuer != last.subject:
        issuer = next((der for der in parsed if der.subject == last.issuer), None)
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
        certificate_chain_pem=_pem([der.public_bytes(serialization.Encoding.DER) for der in chain]),
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
            # older Java tools write BER; the library reads it, but emits a warning
            warnings.simplefilter("ignore", UserWarning)
            if password is None:
                return load_pkcs12(without_mac(data), None)
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
    """Yield label and text of each PEM block. Also accepts blocks whose lines are joined by spaces,
    as .properties files may have.
    """
    for match in _PEM_BLOCK.finditer(text):
        label, body = match[1].strip(), match[2]
        if ":" not in body:  # no PEM headers, which only the older encrypted form has
            body = "\n".join(textwrap.wrap("".join(body.split()), _LINE_CHARACTERS))
        yield label, f"-----BEGIN {label}-----\n{body.strip()}\n-----END {label}-----\n"
