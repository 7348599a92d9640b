"""Removes the secrets of a configuration from a text.

Twinlog does not log secrets; this is a second safeguard for texts that leave the machine. It knows
the configuration's secrets in several encodings, and patterns that only secrets have: private keys,
tokens, headers, users in URLs, and values after a name of a secret, so that a secret that is no
longer configured is removed as well. A secret that was truncated, broken over lines or encoded in
another way is not found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, quote_plus

from twinlog.cluster.security.jaas import BrokenJaas, parse_jaas
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.values.origin import Setting, is_secret
from twinlog.shown import shown

HIDDEN: Final = "<hidden>"
NAMED_LIKE_SECRETS: Final = (".type", ".location", ".url", ".algorithm", ".class")
"""`ssl.keystore.type` is `PEM`, which is not secret and occurs in many texts."""

SHORTEST: Final = 3
"""Shorter values occur in any text by chance."""

SHORTEST_OF_PROVIDER: Final = 4
"""A config provider returns all kinds of values, including ports and names."""

ALONE_BELOW: Final = 8
"""A shorter value of a config provider is replaced only where it is a whole word."""

_NO_SECRETS: Final = frozenset({"true", "false", "none", "null"})
_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_USERS: Final = frozenset({"username", "clientid"})
_USER_INFO: Final = re.compile(r"(?<=://)[^/\s@\"']+(?=@)")
_PEM_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)
_TOKEN: Final = re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*")
_HEADER: Final = re.compile(r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?)[^\"'\r\n]+")
_SCHEME: Final = re.compile(
    r"(?i)\b((?:Bearer|Basic)[ \t]+)"
    r"(?!(?:auth\w*|tokens?|credentials?|access|login|scheme)\b)[\w.~+/-]{4,}=*"
)
_NAMES: Final = r"(?:password|passphrase|passwd|secret|token|credential|private\.key|ssl\.key)"
_NAMED: Final = re.compile(rf"(?i){_NAMES}")
_ASSIGNED: Final = re.compile(
    rf"""(?i)([\w.-]*{_NAMES}[ \t]*=[ \t]*)
    (?: \\"(?:[^"\\]|\\\\(?:\\.|[^\\])|\\[^"\\])*\\"  # in quotes, within a JSON text
      | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'
      | ["'\\]?[^\s,;"'}})\]]+ )""",
    re.VERBOSE,
)
_IN_MAPPING: Final = re.compile(
    rf"""(?i)([\w.-]*{_NAMES}\\?["'][ \t]*:[ \t]*)
    (?: \\"(?:[^"\\]|\\\\(?:\\.|[^\\])|\\[^"\\])*\\" | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )""",
    re.VERBOSE,
)


class SecretScrubber:
    """Removes the secrets of one configuration."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        secrets: set[str] = set()
        words: set[str] = set()
        users: set[str] = set()
        for setting in settings:
            found = list(_secrets_of(setting))
            secrets.update(found)
            users.update(text for name, text in _options(setting.value) if name.lower() in _USERS)
            word = setting.value.strip()
            is_long = len(word) >= SHORTEST_OF_PROVIDER
            if not found and setting.from_provider and is_long and word.lower() not in _NO_SECRETS:
                words.add(word)
        known = {form for secret in secrets for form in forms(secret)}
        known.update(form for secret in secrets for form in pairs_in_base64(users, secret))
        self._known = _any_of(known)
        self._words = _any_of(words, r"(?<![\w]){}(?![\w])")
        self._cores = _any_of(core for secret in secrets for core in cores_in_base64(secret))

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        for pattern in (_PEM_KEY, _USER_INFO, _TOKEN):
            text = pattern.sub(HIDDEN, text)
        if self._cores is not None:
            text = hide_around(text, self._cores, HIDDEN)
        for known in (self._known, self._words):
            text = text if known is None else known.sub(HIDDEN, text)
        # most lines name no secret, and these two patterns are slow
        named = (_ASSIGNED, _IN_MAPPING) if _NAMED.search(text) else ()
        for behind in (_HEADER, _SCHEME, *named):
            text = behind.sub(rf"\1{HIDDEN}", text)
        return text

    def clean_value(self, value: Any) -> Any:
        """Clean the strings of a JSON value one by one, so that it stays valid JSON."""
        match value:
            case str():
                return self.clean(value)
            case dict():
                return {
                    self.clean(key) if isinstance(key, str) else key: HIDDEN
                    if isinstance(each, str) and is_secret(str(key))
                    else self.clean_value(each)
                    for key, each in value.items()
                }
            case list() | tuple():
                return [self.clean_value(each) for each in value]
            case _:
                return value


def settings_of(config: MirrorConfig) -> Iterator[Setting]:
    """Yield every setting of the clusters, flows and clients."""
    for cluster in config.clusters:
        yield from cluster.settings.values()
    for flow in config.flows:
        yield from flow.settings.values()
        for client in (*flow.clients.of_source(), *flow.clients.of_target()):
            yield from (client.origin(key) for key in client)


def _secrets_of(setting: Setting) -> Iterator[str]:
    value = setting.value.strip()
    for found in _USER_INFO.finditer(value):
        password = found[0].partition(":")[2]
        if len(password) >= SHORTEST:
            yield password
    if is_secret(setting.key) and not setting.key.endswith(NAMED_LIKE_SECRETS):
        parts = [value]
        # a JAAS line is a module with options; each may occur alone, escaped or unescaped
        parts += [text for name, text in _options(value) if is_secret(name)]
        # each line of a PEM text may occur alone
        parts += [line.strip() for line in value.splitlines() if not line.startswith("-----")]
        yield from (part for part in parts if len(part) >= SHORTEST)
    elif setting.from_provider and len(value) >= ALONE_BELOW:
        yield value


def _options(value: str) -> Iterator[tuple[str, str]]:
    for option in _OPTION.finditer(value):
        yield from ((option[1], part) for part in option.groups()[1:] if part)
    with suppress(BrokenJaas):  # not a valid JAAS line: use the text only
        yield from parse_jaas(value).options.items()


def _any_of(texts: Iterable[str], around: str = "{}") -> re.Pattern[str] | None:
    # the longest first, because one may be part of another
    alternatives = [re.escape(one) for one in sorted(texts, key=len, reverse=True) if one]
    return re.compile(around.format(f"(?:{'|'.join(alternatives)})")) if alternatives else None


# The forms in which a log may contain a secret: quoted, escaped, URL-encoded, in base64.

SURE_BASE64: Final = 8
"""This many characters of base64 do not match by chance within a longer text."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")


def forms(secret: str) -> set[str]:
    """Return the encodings of a secret other than base64, which overlaps with its neighbors."""
    found: set[str] = set()
    # a JAAS line quotes it, a properties file doubles backslashes, and one may contain the other
    for text in (secret, _quoted(secret), _quoted(_quoted(secret)), secret.replace("\n", "\\n")):
        found |= {text, repr(text)[1:-1], shown(text)}
        for ensure_ascii in (True, False):
            in_json = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
            found |= {in_json, in_json.replace("/", "\\/")}
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        found |= {encoded, re.sub("%[0-9A-F]{2}", lambda hexed: hexed[0].lower(), encoded)}
    return found


def pairs_in_base64(users: Iterable[str], secret: str) -> Iterator[str]:
    """Yield what PLAIN and Basic send for a user and a password. Short passwords would not be found
    within other base64.
    """
    for user in users:
        for text in (f"\0{user}\0{secret}", f"{user}\0{user}\0{secret}", f"{user}:{secret}"):
            yield from _encoded(text.encode())
        form = f"{quote_plus(user)}:{quote_plus(secret)}"  # of an OAuth client
        yield from _encoded(form.encode())


def cores_in_base64(secret: str) -> Iterator[str]:
    """Yield the core of the secret's base64 for each of the three alignments within a text."""
    data = secret.encode()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # the first characters also encode preceding bits, and the last one following bits
        start = (0, 2, 3)[before]
        end = len(text) - (0 if (before + len(data)) % 3 == 0 else 1)
        if end - start >= SURE_BASE64:
            core = text[start:end]
            yield core
            yield core.replace("+", "-").replace("/", "_")


def hide_around(text: str, core: re.Pattern[str], hidden: str) -> str:
    """Hide each base64 text that contains such a core as a whole."""
    parts: list[str] = []
    done = 0
    for match in core.finditer(text):
        if match.end() <= done:
            continue  # within the previous text
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


class CurrentSecrets:
    """Removes the secrets of the current configuration from every line that is logged; thread-safe.

    Secrets of a replaced configuration stay known, because its flows may still log errors.

    Log lines are for the operator of the mirror, and names of brokers and topics often come from
    config providers. Only values of keys that name a secret and passwords in URLs are therefore
    removed. A support bundle goes to outsiders and also hides every value that a config provider
    returned. A password that is changed in a provider's file is known from the next read of the
    configuration on.
    """

    def __init__(self, current: Callable[[], MirrorConfig]) -> None:
        """`current` returns the current configuration."""
        self._current = current
        self._known: dict[tuple[str, str], Setting] = {}
        """By key and value, because clusters and their clients share settings."""
        self._made: tuple[MirrorConfig | None, SecretScrubber] = (None, SecretScrubber())

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        config, scrubber = self._made
        now = self._current()
        if now is not config:
            found = filter(None, map(_secret, settings_of(now)))
            self._known |= {(one.key, one.value): one for one in found}
            scrubber = SecretScrubber(list(self._known.values()))
            self._made = (now, scrubber)
        return scrubber.clean(text)


def _secret(setting: Setting) -> Setting | None:
    may_hold_one = is_secret(setting.key) or "://" in setting.value
    return replace(setting, from_provider=False) if may_hold_one else None
