"""The forms in which a secret may stand in a text: quoted, escaped, encoded for URLs, in base64.

Who logs a request, a JAAS line or a header does not log the password as it is in the file.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from twinlog.shown import shown

SURE_BASE64: Final = 8
"""So many characters of base64 in the middle of others are no chance."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")


def forms(secret: str) -> set[str]:
    """Texts that say this secret; base64 is apart, since it runs over its ends."""
    found: set[str] = set()
    # a JAAS line has it in quotes, a properties file doubles backslashes, one may be in the other
    for text in (secret, _quoted(secret), _quoted(_quoted(secret)), secret.replace("\n", "\\n")):
        found |= {text, repr(text)[1:-1], shown(text)}
        for ensure_ascii in (True, False):
            in_json = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
            found |= {in_json, in_json.replace("/", "\\/")}
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        found |= {encoded, re.sub("%[0-9A-F]{2}", lambda hexed: hexed[0].lower(), encoded)}
    return found


def pairs_in_base64(users: Iterable[str], secret: str) -> Iterator[str]:
    """What PLAIN and Basic send of a user and a password too short to be found within others."""
    for user in users:
        for text in (f"\0{user}\0{secret}", f"{user}\0{user}\0{secret}", f"{user}:{secret}"):
            yield from _encoded(text.encode())
        form = f"{quote_plus(user)}:{quote_plus(secret)}"  # an OAuth client's
        yield from _encoded(form.encode())


def cores_in_base64(secret: str) -> Iterator[str]:
    """What a base64 text contains wherever the secret lies in it: for each of three places."""
    data = secret.encode()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # the first characters hold bits of what is before, the last one those of what follows
        start = (0, 2, 3)[before]
        end = len(text) - (0 if (before + len(data)) % 3 == 0 else 1)
        if end - start >= SURE_BASE64:
            core = text[start:end]
            yield core
            yield core.replace("+", "-").replace("/", "_")


def hide_around(text: str, core: re.Pattern[str], hidden: str) -> str:
    """Each base64 text with such a core, hidden as a whole."""
    parts: list[str] = []
    done = 0
    for match in core.finditer(text):
        if match.end() <= done:
            continue  # in the one before
        start, end = match.span()
        while start > done and text[start - 1] in _BASE64:
            start -= 1
        while end < len(text) and text[end] in _BASE64:
            end += 1
        parts += [text[done:start], hidden]
        done = end
    return "".join([*parts, text[done:]])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _encoded(data: bytes) -> Iterator[str]:
    for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        yield encoded.decode().rstrip("=")
