"""Converts Java's names of TLS cipher suites to OpenSSL's.

Python can select suites only for TLS 1.2. TLS 1.3 has few suites, and none is weak, so they are
enabled or disabled together: a list without any of them disables TLS 1.3, and a list of nothing
else disables TLS 1.2.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from functools import cache
from typing import Final

TLS_1_3: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
_SIGNALS: Final = frozenset({"TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV"})
"""Signals that Java lists as suites. OpenSSL always sends them."""
_JAVA_NAME: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")
_KEY_BITS: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)")


def unknown_suites(suites: Sequence[str]) -> list[str]:
    """Return the names for which this machine's OpenSSL has no suite."""
    return [
        suite
        for suite in suites
        if suite not in TLS_1_3
        and suite not in _SIGNALS
        and openssl_name(suite) not in _available_ciphers()
    ]


def restrict(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Allow only these suites, given by their Java names. An empty list allows the default ones."""
    if not suites:
        return
    older = [openssl_name(each) for each in suites if each not in TLS_1_3 | _SIGNALS]
    if not TLS_1_3.intersection(suites):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def openssl_name(suite: str) -> str:
    """Convert a name like TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 to ECDHE-RSA-AES128-SHA256."""
    match = _JAVA_NAME.fullmatch(suite)
    if match is None:
        return suite
    cipher = _KEY_BITS.sub(r"\1\2", match["cipher"]).replace("_CBC_", "_")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"
    exchange = "" if match["exchange"] == "RSA" else match["exchange"] + "_"
    return (exchange + cipher).replace("_", "-")


@cache
def _available_ciphers() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL")
    return frozenset(each["name"] for each in context.get_ciphers())
