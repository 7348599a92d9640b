r"""Java's .properties format, read exactly as `java.util.Properties` does, with line numbers.

Kafka passes the file's bytes to Properties.load(InputStream), which decodes them as ISO-8859-1.
`decode` does the same, so that passwords work, or fail, as with MirrorMaker 2.

A natural line ends with \n, \r or \r\n. If a natural line ends with an odd number of backslashes,
the next one continues it, and both belong to one logical line. White space at the start of each
natural line is dropped. These surprising rules are kept:

- white space at the end of a value, and a `#` inside one, are part of the value;
- a comment cannot be continued, and cannot start on a continuation line;
- a backslash before any other character is dropped (`C:\temp` is `C:<tab>emp`);
- the last of several equal keys applies (with a warning, because they are usually mistakes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.config.values.origin import Setting, Settings
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATORS = "=:"
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_UNICODE_DIGITS = 4
_ESCAPE = re.compile(rf"\\(?:u(.{{0,{_UNICODE_DIGITS}}})|(.)|$)", re.DOTALL)
"""Matches an escape: the digits of a Unicode escape, or a character, or neither at the end."""
_ESCAPED_IN_FILES = frozenset("\\trnfu :=#!\"'")
"""Characters with useful escapes: control characters, and those of Properties.store and JAAS."""
_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertiesText:
    """The settings of a file, each with its first line."""

    settings: Settings
    warnings: tuple[ConfigWarning, ...]
    """Warnings about duplicate keys, and about values that Java reads in another way than a user
    expects.
    """


def decode(data: bytes) -> str:
    """Return the text as Java decodes it: one character per byte."""
    return data.decode("iso-8859-1")


def parse_properties(text: str, *, file: str = "<text>") -> PropertiesText:
    r"""Parse a file. A malformed \uXXXX escape is the only possible error."""
    settings: dict[str, Setting] = {}
    as_written: dict[str, str] = {}
    warnings: list[ConfigWarning] = []
    for line, logical in _logical_lines(text):
        key_text, value_text = _split(logical)
        key = _unescape(key_text, file=file, line=line)
        value = _unescape(value_text, file=file, line=line)
        setting = Setting(key=key, value=value, file=file, line=line)
        if key in settings:
            message = f"overrides line {settings[key].line}; remove one of them"
            warnings.append(warning(WarningCode.DUPLICATE_KEY, setting, message))
        settings[key], as_written[key] = setting, value_text
    for key, setting in settings.items():
        warnings += _surprises(setting, as_written[key])
    return PropertiesText(settings=Settings(settings), warnings=tuple(warnings))


def _surprises(setting: Setting, written: str) -> Iterator[ConfigWarning]:
    """Yield warnings if Java drops a backslash, which is usually half of an escape in a regular
    expression, or decodes bytes as ISO-8859-1.
    """
    if not written.isascii():
        message = "non-ASCII characters are read as ISO-8859-1, as in Java; write \\uXXXX"
        yield warning(WarningCode.NOT_ASCII, setting, message)
    escaped = dict.fromkeys(match[2] for match in _ESCAPE.finditer(written))
    dropped = [char for char in escaped if char and char not in _ESCAPED_IN_FILES]
    if dropped:
        yield warning(
            WarningCode.BACKSLASH_DROPPED,
            setting,
            f"Java drops the backslash before {' and '.join(dropped)}, so that the value is "
            f"{setting.shown}; write " + " and ".join(f"\\\\{char}" for char in dropped),
        )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines without comments, each with the number of its first natural line."""
    pending = ""
    first_line = 0
    unfinished = False
    for number, (natural, end) in enumerate(_natural_lines(text), start=1):
        body = natural.lstrip(_BLANKS)
        # after a line of only a backslash nothing is pending, so the next line may be a comment or
        # blank
        if not pending:
            if not body or body[0] in "#!":
                unfinished = False
                continue
            first_line = number
        # an odd number of backslashes at the end of this natural line means that the last one
        # escapes the line end
        if (len(body) - len(body.rstrip("\\"))) % 2:
            pending += body[:-1]
            # if nothing is pending at the end of the file, Java makes an empty entry, except after
            # \r\n
            unfinished = bool(pending) or end != "\r\n"
        else:
            yield first_line, pending + body
            pending, unfinished = "", False
    if unfinished:
        # the file ends with a continued line: Java still makes an entry of it, even if it is empty
        yield first_line, pending


def _natural_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the natural lines, each with its line end (empty if the last line has none)."""
    start = 0
    for match in _LINE_END.finditer(text):
        yield text[start : match.start()], match[0]
        start = match.end()
    if start < len(text):
        yield text[start:], ""


def _split(logical: str) -> tuple[str, str]:
    """Return key and value, still escaped. The key ends at an unescaped blank, `=` or `:`."""
    position = 0
    while position < len(logical) and logical[position] not in _BLANKS + _SEPARATORS:
        position += 2 if logical[position] == "\\" else 1
    key = logical[:position]
    rest = logical[position:].lstrip(_BLANKS)
    if rest[:1] and rest[0] in _SEPARATORS:
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, *, file: str, line: int) -> str:
    def unescaped(match: re.Match[str]) -> str:
        if match[1] is None:
            return _ESCAPES.get(match[2], match[2] or "")
        if len(match[1]) != _UNICODE_DIGITS or not _HEX.issuperset(match[1]):
            raise ConfigError(
                "\\u must be followed by four hexadecimal digits; "
                "write \\\\u for a backslash and a u",
                file=file,
                line=line,
            )
        return chr(int(match[1], 16))

    if "\\" not in text:
        return text
    # Java strings are UTF-16, so two escapes can form one character
    units = _ESCAPE.sub(unescaped, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")
