r"""Converts a Java client's keys to SecuritySettings: `security.protocol`, `ssl.*`, `sasl.*`.

The rules are those of Java. Every error has the key, its location and a valid value. A mechanism or
class that Twinlog does not support is rejected before any connection is opened.

**JAAS.** `sasl.jaas.config` is one login module, a control flag, options, and a semicolon:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\"c";

Kafka parses the value with `java.io.StreamTokenizer`, so the rules are those of that class:

- A word consists of letters, digits and `. - _ $`. A string has double or single quotes, and C
  escapes.
- `//`, `/* */` and a single `/` begin comments.
- A word that begins like a number is a number. Kafka accepts it as a value only within quotes.

No message contains a value, because the value may be a password.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from twinlog.cluster.security.client_keys import ClientKeys
from twinlog.cluster.security.oauth_keys import JAAS, LOGIN_HANDLER, load_oauth
from twinlog.cluster.security.renewal import follow
from twinlog.cluster.security.security_settings import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    PLAINTEXT,
    PROTOCOLS,
    SecuritySettings,
)
from twinlog.cluster.security.tls import check_usable
from twinlog.cluster.security.tls_keys import CIPHERS, KEY_FILE, KEY_TEXT, with_tls
from twinlog.config.keys.client_keys import class_name

CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN: Final = re.compile(
    r"""(?P<space>[\x00-\x20]+)
      | (?P<comment>/\*.*?(?:\*/|\Z)|/[^\r\n]*)
      | (?P<number>[0-9.-][0-9A-Za-z._$\u0080-\U0010ffff-]*)
      | (?P<word>[A-Za-z_$\u0080-\U0010ffff][0-9A-Za-z._$\u0080-\U0010ffff-]*)
      | "(?P<double>(?:\\[^\r\n]|[^"\\\r\n])*)(?P<double_end>"?)
      | '(?P<single>(?:\\[^\r\n]|[^'\\\r\n])*)(?P<single_end>'?)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, options={sorted(self.options)})"


class BrokenJaas(Exception):
    """A `sasl.jaas.config` is invalid. The text is the reason, without values. It continues a
    message that begins with the key.
    """


class _Token(NamedTuple):
    text: str
    is_text: bool
    """True if the token is a word or a string, False if it is a number or a character like `=`."""
    what: str = ""
    """A description of the token for messages. Empty if `is_text`."""


def parse_jaas(text: str) -> LoginModule:
    """Return the login module of a `sasl.jaas.config`. Raises BrokenJaas."""
    tokens = list(_tokens(text))
    if not tokens:
        raise BrokenJaas('is empty: write LoginModule required option="value";')
    name = _expect_text(tokens, 0, "must begin with the class of a login module")
    flag = _expect_text(tokens, 1, "needs a control flag after the login module: write 'required'")
    if flag.lower() not in CONTROL_FLAGS:
        raise BrokenJaas(f"the word after {name} is not a control flag: write 'required' there")
    options, end = _options(tokens, 2)
    if end != len(tokens) - 1:
        raise BrokenJaas(
            "continues after the first ';': exactly one login module is allowed, "
            "and a ';' within a value needs quotes around the value"
        )
    return LoginModule(name=name, options=options)


def _options(tokens: list[_Token], position: int) -> tuple[dict[str, str], int]:
    options: dict[str, str] = {}
    last = "the control flag"
    while position < len(tokens) and not _has_character(tokens, position, ";"):
        after = f'after {last}: write name="value", with quotes around special characters'
        key = _expect_text(tokens, position, f"needs an option name {after}")
        if not _has_character(tokens, position + 1, "="):
            # the message omits the name, because it may be the end of a password without quotes
            raise BrokenJaas(f"no '=' after the option name {after}")
        options[key] = _expect_text(
            tokens, position + 2, f'needs a value for {key}: write {key}="value"'
        )
        last = f"the value of {key}"
        position += 3
    if position >= len(tokens):
        raise BrokenJaas(f"does not end with ';': add one after {last}")
    return options, position


def _has_character(tokens: list[_Token], position: int, character: str) -> bool:
    return (
        position < len(tokens)
        and not tokens[position].is_text
        and tokens[position].text == character
    )


def _expect_text(tokens: list[_Token], position: int, expected: str) -> str:
    if position < len(tokens) and tokens[position].is_text:
        return tokens[position].text
    what = tokens[position].what if position < len(tokens) else "the end of the text"
    raise BrokenJaas(f"{expected}; found {what}")


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind in ("space", "comment"):
            continue
        if kind == "word":
            yield _Token(match[kind], True)
        elif kind == "number":
            yield _Token("", False, "a number without quotes")
        elif kind in ("double_end", "single_end"):
            if not match[kind]:
                raise BrokenJaas("a quoted value has no closing quote on its line")
            yield _Token(_ESCAPE.sub(_unescape, match[kind.removesuffix("_end")]), True)
        else:
            yield _Token(match[0], False, "a character that needs quotes around its value")


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"
LOGIN_CLASS: Final = "sasl.login.class"

JAVA_DEFAULT_MECHANISM: Final = "GSSAPI"

# PLAIN and SCRAM accept user name and password from either module, as in Java
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PASSWORD_MODULES: Final = frozenset({_PLAIN_MODULE, _SCRAM_MODULE})
_OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MODULE_FOR: Final = {PLAIN: _PLAIN_MODULE, OAUTHBEARER: _OAUTH_MODULE}
_NO_JAVA_CODE: Final = "Java code cannot run here; remove the key"


Files = tuple[tuple[str, str], ...]
"""Pairs of configuration key and path, one for each file."""


def load_security(
    properties: Mapping[str, str],
    *,
    where: str,
    files: Files = (),
    again: Callable[[], Mapping[str, str]] | None = None,
) -> SecuritySettings:
    """Return the TLS and SASL settings of one cluster, with the content of all files that the keys
    refer to. Raises ConfigError, whose message begins with `where`.

    From then on, `renewal` checks these files for changes. It also checks `files`, from which
    config providers have read values of `properties`. If a file has changed, `again` is called for
    the new properties.
    """
    settings = _load(properties, where, files)
    follow(settings, lambda: _load(again() if again else properties, where, files))
    return settings


def is_of_security(key: str) -> bool:
    """Return True if `load_security` reads this client key."""
    return key.startswith(("ssl.", "sasl.", "security."))


def _load(properties: Mapping[str, str], where: str, files: Files) -> SecuritySettings:
    keys = ClientKeys(properties, where=where)
    protocol = (keys.text(PROTOCOL) or PLAINTEXT).upper()
    if protocol not in PROTOCOLS:
        keys.fail(PROTOCOL, f"{protocol!r} is unknown: write one of {', '.join(PROTOCOLS)}")
    settings = SecuritySettings(protocol=protocol)
    if settings.needs_sasl:
        settings = _with_sasl(settings, keys)
    if settings.needs_tls:
        settings = _with_usable_tls(settings, keys)
    return replace(settings, files=tuple(dict.fromkeys((*files, *keys.files))))


def _with_usable_tls(settings: SecuritySettings, keys: ClientKeys) -> SecuritySettings:
    complete = with_tls(settings, keys)
    try:
        check_usable(complete)
    except ssl.SSLError as error:
        key = KEY_TEXT if keys.text(KEY_TEXT) else KEY_FILE if keys.text(KEY_FILE) else CIPHERS
        keys.fail(key, f"OpenSSL rejects it: {error.reason or error}")
    return complete


def _with_sasl(settings: SecuritySettings, keys: ClientKeys) -> SecuritySettings:
    mechanism = _mechanism(keys)
    keys.only_known_class(CLIENT_HANDLER, frozenset({"SaslClientCallbackHandler"}), _NO_JAVA_CODE)
    keys.only_known_class(
        LOGIN_CLASS, frozenset({"DefaultLogin", "OAuthBearerRefreshingLogin"}), _NO_JAVA_CODE
    )
    text = keys.text(JAAS)
    if text is None:
        keys.fail(JAAS, f"not set, and {settings.protocol} needs it: {_example(mechanism)}")
    try:
        module = parse_jaas(text)
    except BrokenJaas as error:
        keys.fail(JAAS, str(error))
    options = dict(module.options)
    if mechanism == OAUTHBEARER:
        _expect_module(keys, module, frozenset({_OAUTH_MODULE}), mechanism)
        return replace(settings, sasl_mechanism=mechanism, oauth=load_oauth(keys, options))
    _expect_module(keys, module, _PASSWORD_MODULES, mechanism)
    keys.only_known_class(LOGIN_HANDLER, frozenset({"DefaultLoginCallbackHandler"}), _NO_JAVA_CODE)
    username, password = options.get("username", ""), options.get("password", "")
    for name, value in (("username", username), ("password", password)):
        if not value:
            keys.fail(JAAS, f"has no {name}, but {mechanism} needs one: {_example(mechanism)}")
        if "\0" in value:
            keys.fail(JAAS, f"its {name} contains a NUL character, which no mechanism can carry")
    return replace(
        settings,
        sasl_mechanism=mechanism,
        username=username,
        password=password,
        is_delegation_token=options.get("tokenauth", "").lower() == "true",
    )


def _mechanism(keys: ClientKeys) -> str:
    mechanism = keys.text(MECHANISM)
    supported = ", ".join(MECHANISMS)
    if mechanism is None:
        keys.fail(
            MECHANISM,
            f"not set, which means {JAVA_DEFAULT_MECHANISM} (Kerberos), which Twinlog does not "
            f"support: write one of {supported}",
        )
    if mechanism not in MECHANISMS:
        keys.fail(MECHANISM, f"{mechanism!r} is not supported: write one of {supported}")
    return mechanism


def _expect_module(
    keys: ClientKeys, module: LoginModule, known: frozenset[str], mechanism: str
) -> None:
    if class_name(module.name) not in known:
        keys.fail(JAAS, f"{module.name} is not for {mechanism}: {_example(mechanism)}")


def _example(mechanism: str) -> str:
    name = _MODULE_FOR.get(mechanism, _SCRAM_MODULE)
    options = 'clientId="..." clientSecret="..."'
    if mechanism != OAUTHBEARER:
        options = 'username="..." password="..."'
    return f"write {name} required {options};"
