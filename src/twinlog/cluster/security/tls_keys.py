"""Reads the keys `ssl.*`, with the same rules about combinations of keys as Kafka's Java client.

The keys that select one of several Java implementations are ignored: `ssl.provider`,
`ssl.keymanager.algorithm`, `ssl.trustmanager.algorithm` and `ssl.secure.random.implementation`.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Final

from twinlog.cluster.security import keystores, tls
from twinlog.cluster.security.client_keys import ClientKeys
from twinlog.cluster.security.keystores import (
    BrokenStore,
    Identity,
    WrongKeyPassword,
    WrongPassword,
)
from twinlog.cluster.security.security_settings import TLS_VERSIONS, SecuritySettings

TRUST_TYPE: Final = "ssl.truststore.type"
TRUST_FILE: Final = "ssl.truststore.location"
TRUST_PASSWORD: Final = "ssl.truststore.password"  # noqa: S105 - a key's name
TRUST_TEXT: Final = "ssl.truststore.certificates"
KEY_TYPE: Final = "ssl.keystore.type"
KEY_FILE: Final = "ssl.keystore.location"
STORE_PASSWORD: Final = "ssl.keystore.password"  # noqa: S105
KEY_TEXT: Final = "ssl.keystore.key"
CHAIN_TEXT: Final = "ssl.keystore.certificate.chain"
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105
ENDPOINT_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"
ENABLED: Final = "ssl.enabled.protocols"
HIGHEST: Final = "ssl.protocol"
CIPHERS: Final = "ssl.cipher.suites"
ENGINE: Final = "ssl.engine.factory.class"

PEM: Final = "PEM"
STORE_TYPES: Final = ("JKS", "PKCS12", PEM)


def with_tls(settings: SecuritySettings, keys: ClientKeys) -> SecuritySettings:
    """Return `settings` with the values of the `ssl.*` keys and their files. Raises ConfigError."""
    keys.only_known_class(
        ENGINE, frozenset({"DefaultSslEngineFactory"}), "Java code cannot run here; remove the key"
    )
    identity = _load_identity(keys)
    return replace(
        settings,
        ca_pem=load_trust(keys),
        certificate_chain_pem=identity.certificate_chain_pem if identity else None,
        private_key_pem=identity.private_key_pem if identity else None,
        check_hostname=_is_hostname_checked(keys),
        tls_versions=_tls_versions(keys),
        cipher_suites=_cipher_suites(keys),
    )


def load_trust(keys: ClientKeys) -> str | None:
    """Return the certificates of the truststore as PEM, or None if no truststore is configured."""
    kind = _store_type(keys, TRUST_TYPE)
    password = keys.raw(TRUST_PASSWORD)
    in_line = keys.text(TRUST_TEXT)
    if in_line is not None:
        _only_pem(keys, TRUST_TEXT, kind, TRUST_TYPE)
        _refuse_together(keys, TRUST_TEXT, TRUST_FILE, TRUST_PASSWORD)
        return _checked_trust(keys, TRUST_TEXT, in_line)
    path = keys.text(TRUST_FILE)
    if path is None:
        if password:
            keys.fail(TRUST_PASSWORD, f"set without a store: set {TRUST_FILE} as well")
        return None
    data = keys.read_file(TRUST_FILE)
    if kind == PEM:
        _refuse_together(keys, f"{TRUST_TYPE}=PEM", TRUST_PASSWORD)
        return _checked_trust(keys, TRUST_FILE, _text(data), path)
    try:
        return _loadable(keystores.trusted_from_store(data, password))
    except BrokenStore as error:
        keys.fail(TRUST_FILE, _bad_store(path, error, TRUST_TYPE))
    except WrongPassword as error:
        keys.fail(TRUST_PASSWORD, f"the password {error} ({path})")


def _checked_trust(keys: ClientKeys, key: str, text: str, path: str = "its value") -> str:
    try:
        return _loadable(keystores.trusted_from_pem(text))
    except BrokenStore as error:
        keys.fail(key, _bad_store(path, error, TRUST_TYPE))


def _loadable(pem: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except ssl.SSLError:
        raise BrokenStore("one of its certificates is damaged") from None
    return pem


def _load_identity(keys: ClientKeys) -> Identity | None:
    kind = _store_type(keys, KEY_TYPE)
    if keys.text(KEY_TEXT) is not None or keys.text(CHAIN_TEXT) is not None:
        return _inline_identity(keys, kind)
    path = keys.text(KEY_FILE)
    password = keys.raw(STORE_PASSWORD)
    if path is None:
        if password:
            keys.fail(STORE_PASSWORD, f"set without a store: set {KEY_FILE} as well")
        return None
    data = keys.read_file(KEY_FILE)
    if kind == PEM:
        _refuse_together(keys, f"{KEY_TYPE}=PEM", STORE_PASSWORD)
        return _pem_identity(keys, KEY_FILE, _text(data), _text(data), path)
    if password is None:
        keys.fail(STORE_PASSWORD, f"not set, but needed to open {path}")
    try:
        return keystores.identity_from_store(data, password, keys.raw(KEY_PASSWORD))
    except BrokenStore as error:
        keys.fail(KEY_FILE, _bad_store(path, error, KEY_TYPE))
    except WrongPassword as error:
        of_key = isinstance(error, WrongKeyPassword) and keys.raw(KEY_PASSWORD) is not None
        keys.fail(KEY_PASSWORD if of_key else STORE_PASSWORD, f"the password {error} ({path})")


def _inline_identity(keys: ClientKeys, kind: str) -> Identity:
    key, chain = keys.text(KEY_TEXT), keys.text(CHAIN_TEXT)
    if key is None:
        keys.fail(KEY_TEXT, f"not set, but {CHAIN_TEXT} needs it")
    if chain is None:
        keys.fail(CHAIN_TEXT, f"not set, but {KEY_TEXT} needs it")
    _only_pem(keys, KEY_TEXT, kind, KEY_TYPE)
    _refuse_together(keys, KEY_TEXT, KEY_FILE, STORE_PASSWORD)
    return _pem_identity(keys, KEY_TEXT, key, chain, "its value")


def _pem_identity(keys: ClientKeys, key: str, key_text: str, chain: str, path: str) -> Identity:
    try:
        return keystores.identity_from_pem(key_text, chain, keys.raw(KEY_PASSWORD))
    except BrokenStore as error:
        keys.fail(key, _bad_store(path, error, KEY_TYPE))
    except WrongPassword as error:
        keys.fail(KEY_PASSWORD, f"the password {error}")


def _is_hostname_checked(keys: ClientKeys) -> bool:
    value = keys.raw(ENDPOINT_ALGORITHM)
    if value is None or value.strip().lower() == "https":
        return True
    if value.strip():
        keys.fail(
            ENDPOINT_ALGORITHM,
            f"{value!r} is unknown: remove the key, or leave it empty for no check",
        )
    return False


def _tls_versions(keys: ClientKeys) -> tuple[str, ...]:
    wanted = keys.words(ENABLED) or TLS_VERSIONS
    highest = keys.text(HIGHEST) or TLS_VERSIONS[-1]
    if highest not in (*TLS_VERSIONS, "TLS"):
        keys.fail(HIGHEST, f"{highest!r} is not supported: write one of {', '.join(TLS_VERSIONS)}")
    usable = tuple(
        version
        for version in TLS_VERSIONS
        if version in wanted and (highest == "TLS" or version <= highest)
    )
    if not usable:
        key = ENABLED if keys.words(ENABLED) else HIGHEST
        keys.fail(
            key,
            f"no supported version is left of {', '.join(wanted)} up to {highest}; "
            f"use {', '.join(TLS_VERSIONS)}",
        )
    return usable


def _cipher_suites(keys: ClientKeys) -> tuple[str, ...]:
    suites = keys.words(CIPHERS)
    unknown = tls.unknown_suites(suites)
    if unknown:
        keys.fail(CIPHERS, f"this machine's OpenSSL has no {', '.join(unknown)}")
    return suites


def _store_type(keys: ClientKeys, key: str) -> str:
    kind = (keys.text(key) or STORE_TYPES[0]).upper()
    if kind not in STORE_TYPES:
        keys.fail(
            key, f"{kind!r} cannot be read: convert the store to one of {', '.join(STORE_TYPES)}"
        )
    return kind


def _only_pem(keys: ClientKeys, key: str, kind: str, type_key: str) -> None:
    if kind != PEM:
        keys.fail(type_key, f"must be PEM if {key} is set, but is {kind}")


def _refuse_together(keys: ClientKeys, reason: str, *others: str) -> None:
    for other in others:
        if keys.text(other) is not None:
            keys.fail(other, f"cannot be combined with {reason}: remove one of them")


def _bad_store(path: str, error: BrokenStore, type_key: str) -> str:
    return f"{path} is not a usable store: {error} (check {type_key}, too)"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
