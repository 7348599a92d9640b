"""Takes every secret of a configuration out of a text, whoever put it there.

Nothing of ours writes secrets; this is the second lock of what leaves the house. It knows the
secrets of a configuration in several forms, and some looks that only secrets have:
private keys, tokens, headers, users in URLs, and what stands behind a key that names a secret, so
that one which is no longer in the configuration goes as well. What somebody cut, broke over lines
or wrote in another way, it cannot know.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus

from twinlog.cluster.security.jaas import BrokenJaas, parse_jaas
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.values.origin import Setting, is_secret
from twinlog.shown import shown

HIDDEN: Final = "<hidden>"
NAMED_LIKE_SECRETS: Final = (".type", ".location", ".url", ".algorithm", ".class")
"""`ssl.keystore.type` is `PEM`, which is no secret and in every text."""

SHORTEST: Final = 3
"""What is shorter stands in every text by chance."""

SHORTEST_OF_PROVIDER: Final = 4
"""A config provider returns all kinds of values, ports and names among them."""

ALONE_BELOW: Final = 8
"""A shorter value of a provider counts only where it is a word."""

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
    (?: \\"(?:[^"\\]|\\\\(?:\\.|[^\\])|\\[^"\\])*\\"  # in quotes, all within a JSON text
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
    """Knows the secrets of one configuration."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        secrets: set[str] = set()
        words: set[str] = set()
        users: set[str] = set()
        for setting in settings:
            found = list(_secrets_of(setting))
            secrets.update(found)
            users.update(_users_of(setting))
            if not found and setting.from_provider:
                words.update(_word_of(setting))
        known = {form for secret in secrets for form in forms(secret)}
        known.update(form for secret in secrets for form in pairs_in_base64(users, secret))
        self._known = _any_of(known)
        self._words = _any_of(words, r"(?<![\w]){}(?![\w])")
        self._cores = _any_of(core for secret in secrets for core in cores_in_base64(secret))

    def clean(self, text: str) -> str:
        """The text without secrets."""
        for pattern in (_PEM_KEY, _USER_INFO, _TOKEN):
            text = pattern.sub(HIDDEN, text)
        if self._cores is not None:
            text = hide_around(text, self._cores, HIDDEN)
        for known in (self._known, self._words):
            text = text if known is None else known.sub(HIDDEN, text)
        # most lines name none, and those two read all words before they see it
        named = (_ASSIGNED, _IN_MAPPING) if _NAMED.search(text) else ()
        for behind in (_HEADER, _SCHEME, *named):
            text = behind.sub(_hide_value, text)
        return text

    def clean_value(self, value: Any) -> Any:
        """What is to be JSON, string by string: what is cleaned stays JSON."""
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
    """Every setting that reaches anybody."""
    for cluster in config.clusters:
        yield from cluster.settings.values()
    for flow in config.flows:
        yield from flow.settings.values()
        for client in (
            flow.clients.source_consumer,
            flow.clients.source_admin,
            flow.clients.target_admin,
            flow.clients.target_consumer,
            flow.clients.target_producer,
        ):
            yield from (client.origin(key) for key in client)


def _secrets_of(setting: Setting) -> Iterator[str]:
    value = setting.value.strip()
    for found in _USER_INFO.finditer(value):
        password = found[0].partition(":")[2]
        if len(password) >= SHORTEST:
            yield password
    if is_secret(setting.key) and not setting.key.endswith(NAMED_LIKE_SECRETS):
        parts = [value]
        # a JAAS line is a module with options; each may turn up alone, as it stands or as it is
        parts += [text for name, text in _options(value) if is_secret(name)]
        # a PEM text may turn up line by line
        parts += [line.strip() for line in value.splitlines() if not line.startswith("-----")]
        yield from (part for part in parts if len(part) >= SHORTEST)
    elif setting.from_provider and len(value) >= ALONE_BELOW:
        yield value


def _word_of(setting: Setting) -> Iterator[str]:
    value = setting.value.strip()
    if len(value) >= SHORTEST_OF_PROVIDER and value.lower() not in _NO_SECRETS:
        yield value


def _users_of(setting: Setting) -> Iterator[str]:
    yield from (text for name, text in _options(setting.value) if name.lower() in _USERS)


def _options(value: str) -> Iterator[tuple[str, str]]:
    for option in _OPTION.finditer(value):
        yield from ((option[1], part) for part in option.groups()[1:] if part)
    with suppress(BrokenJaas):  # it is no JAAS line, or a wrong one: then as it stands
        yield from parse_jaas(value).options.items()


def _any_of(texts: Iterable[str], around: str = "{}") -> re.Pattern[str] | None:
    # the longest first: one may be part of another
    alternatives = [re.escape(one) for one in sorted(texts, key=len, reverse=True) if one]
    return re.compile(around.format(f"(?:{'|'.join(alternatives)})")) if alternatives else None


def _hide_value(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}"


# The forms in which a log may contain a secret: quoted, escaped, URL-encoded, in base64.

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
