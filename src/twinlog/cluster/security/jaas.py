"""Reads `sasl.jaas.config` like Java: one login module, a control flag, options, a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"c";

Kafka reads it with `java.io.StreamTokenizer`, so the rules are those of that class:

- A word has letters, digits and `. - _ $`. A string has double or single quotes, and C escapes.
- `//`, `/* */` and a single `/` begin comments.
- A word that begins like a number is a number, which Kafka does not accept as a value. It needs
  quotes.

No message quotes a value, because it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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
    """The configuration is invalid. The text is the reason, without values. It continues a message
    that begins with the key.
    """


class _Token(NamedTuple):
    text: str
    is_text: bool
    """Whether it is a word or a string, and not a character like `=` or `;`."""
    what: str = ""
    """A description for messages, if it is neither."""


def parse_jaas(text: str) -> LoginModule:
    """Return the login module of a `sasl.jaas.config`. Raises BrokenJaas."""
    tokens = list(_tokens(text))
    if not tokens:
        raise BrokenJaas('is empty: write LoginModule required option="value";')
    name = _expect_text(tokens, 0, "begins with the class of a login module")
    flag = _expect_text(tokens, 1, "has a control flag after the login module: write 'required'")
    if flag.lower() not in CONTROL_FLAGS:
        raise BrokenJaas(f"the word after {name} is not a control flag: write 'required' there")
    options, end = _options(tokens, 2)
    if end != len(tokens) - 1:
        raise BrokenJaas(
            "continues after the first ';': exactly one login module is allowed, "
            "and a ';' within a value needs quotes around the value"
        )
    return LoginModule(name=name, options=options)


def _options(tokens: list[_Token], at: int) -> tuple[dict[str, str], int]:
    options: dict[str, str] = {}
    last = "the control flag"
    while at < len(tokens) and not _has_character(tokens, at, ";"):
        after = f'after {last}: write name="value", with quotes around special characters'
        key = _expect_text(tokens, at, f"has an option name {after}")
        if not _has_character(tokens, at + 1, "="):
            # the message leaves the name out, because it may be the end of an unquoted password
            raise BrokenJaas(f"no '=' after the option name {after}")
        options[key] = _expect_text(tokens, at + 2, f'has a value for {key}: write {key}="value"')
        last = f"the value of {key}"
        at += 3
    if at >= len(tokens):
        raise BrokenJaas(f"does not end with ';': add one after {last}")
    return options, at


def _has_character(tokens: list[_Token], at: int, character: str) -> bool:
    return at < len(tokens) and not tokens[at].is_text and tokens[at].text == character


def _expect_text(tokens: list[_Token], at: int, expected: str) -> str:
    if at < len(tokens) and tokens[at].is_text:
        return tokens[at].text
    what = tokens[at].what if at < len(tokens) else "the end of the text"
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
