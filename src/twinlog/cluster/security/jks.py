"""Reads Java's own keystore format (JKS), in which older tools write stores and some JVMs their
trusted certificates.

    u4 magic FEEDFEED, u4 version 2, u4 entries
    entry: u4 tag, utf alias, u8 created ms
       tag 1 private key:  u4 length, EncryptedPrivateKeyInfo; u4 certificates, each as in tag 2
       tag 2 certificate:  utf type, u4 length, DER
    SHA-1 of the password (UTF-16BE), "Mighty Aphrodite" and everything before

*Problem.* Users of MirrorMaker 2 have such files, and OpenSSL cannot read them. Requiring their
conversion to PKCS#12 would mean that a working configuration does not work here.

*Rules.* Certificates are not encrypted, so they can be read without a password. As in Java, the
digest is checked only if a password is given. A private key is encrypted with Sun's own algorithm:

    salt (20 bytes) | key XOR keystream | SHA-1 of password and key
    keystream: S1 = SHA-1(password, salt), S2 = SHA-1(password, S1), ...

SHA-1 in this form is weak, but it is the format. It protects a file of the user and no connection.
Every length is checked against the rest of the file, because a wrong path may lead to any file.

*Rejected.* The library for this format needs a C compiler when it is installed. The format needs
only this module.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

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
    """The bytes are not a readable store. The text is the reason, without a secret."""


class WrongPassword(Exception):
    """A password is missing or wrong. The text continues 'the password'."""


class WrongKeyPassword(WrongPassword):
    """The wrong or missing password is that of the key, not of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateKeyEntry:
    """A private key, still encrypted, and its certificate chain (DER), its own one first."""

    alias: str
    encrypted: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaStore:
    """The entries of a JKS file, in their order."""

    certificates: tuple[bytes, ...]
    keys: tuple[PrivateKeyEntry, ...]


def read_jks(data: bytes, password: str | None) -> JavaStore:
    """Read all entries, and check the file's integrity if a password is given.

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
    salt, covered = cipher[:_DIGEST_BYTES], cipher[_DIGEST_BYTES:-_DIGEST_BYTES]
    secret = password.encode("utf-16-be")
    stream, block = bytearray(), salt
    while len(stream) < len(covered):
        block = _sha1(secret + block)
        stream += block
    plain = bytes(a ^ b for a, b in zip(covered, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + plain), cipher[-_DIGEST_BYTES:]):
        raise WrongKeyPassword(f"of the key {entry.alias!r} is wrong")
    return plain


def without_mac(data: bytes) -> bytes:
    """Return a PKCS#12 file without its MAC: PFX is {version, authSafe, macData OPTIONAL}.

    Java reads the unencrypted certificates of such a file without a password. OpenSSL would first
    check the MAC, which needs the password.
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


def _read_der(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """Return the content of the element at `at`, which has this tag, and the position after it."""
    if len(data) < at + 2 or data[at] != tag:
        raise BrokenStore("its ASN.1 structure is damaged")
    size, at = data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    if at + size > len(data):
        raise BrokenStore("its ASN.1 structure is truncated")
    return data[at : at + size], at + size


class _Reader:
    """Reads the fields of the file in order. Every length is checked against the rest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise BrokenStore("the file is truncated")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def block(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        # Java's modified UTF-8 is different only for NUL and characters beyond the basic plane
        return self.take(size).decode("utf-8", "replace")

    def certificate(self) -> bytes:
        self.text()
        return self.block()
