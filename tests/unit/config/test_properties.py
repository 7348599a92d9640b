"""The .properties format is parsed by Java's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinlog.config.files.properties import decode, parse_properties
from twinlog.errors import ConfigError


def pairs(text: str) -> dict[str, str]:
    return {key: setting.value for key, setting in parse_properties(text).settings.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("  a \t=  b c  ", {"a": "b c  "}),
        ("a = = b", {"a": "= b"}),
        ("a==b", {"a": "=b"}),
        ("clusters: A, B", {"clusters": "A, B"}),
        ("A->B.enabled = true  # x", {"A->B.enabled": "true  # x"}),
        ("# a=b\n! c=d\n  # e=f\ng=h", {"g": "h"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\r\n  c", {"a": "bc"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b=c", {"a:b": "c"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=mm2.*\\.internal", {"a": "mm2.*.internal"}),
        ("a=\\u0041\\u00e9", {"a": "A\xe9"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("=b", {"": "b"}),
        ("a=\\", {"a": ""}),
        ("\\", {"": ""}),
        ("\\\n#a=b", {}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


def test_bytes_are_latin_1() -> None:
    assert pairs(decode("p=\u00e9".encode())) == {"p": "\xc3\xa9"}


def test_an_entry_has_the_line_on_which_it_starts() -> None:
    text = "# one\n\na=1\\\n  2\\\n  3\r\nb=2\n\\\n\nc=3"
    assert [(e.key, e.line) for e in parse_properties(text).settings.values()] == [
        ("a", 3),
        ("b", 6),
        ("c", 9),
    ]


def test_the_last_of_equal_keys_wins_and_is_remembered() -> None:
    read = parse_properties("a=1\nb=2\na=3\na=4")
    found = [(e.key, e.value, e.line) for e in read.settings.values()]
    assert found == [("a", "4", 4), ("b", "2", 2)]
    assert [str(one) for one in read.warnings] == [
        "<text>:3: a: overrides line 1; remove one of them [DUPLICATE_KEY]",
        "<text>:4: a: overrides line 3; remove one of them [DUPLICATE_KEY]",
    ]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "\\uxxxx=b"])
def test_a_malformed_unicode_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"file:2: .*four hexadecimal digits"):
        parse_properties(f"x=y\n{text}", file="file")


FRAGMENTS = st.sampled_from(
    [*"ab=: \t\f#!u\\\\", "\n", "\n", "\r", "\r\n", "\\\n", "\\u0041", "\\t", "\xe9", "x y"]
)
TEXTS = st.lists(FRAGMENTS, max_size=14).map("".join)


@given(TEXTS)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_properties(text)
    except ConfigError:
        return
    lines = text.count("\n") + text.count("\r") + 1
    assert all(1 <= (setting.line or 0) <= lines for setting in read.settings.values())
    assert all(key == setting.key for key, setting in read.settings.items())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=TEXTS)
def test_agrees_with_java_util_properties(java: Any, text: str) -> None:
    properties = java.java.util.Properties()
    stream = java.java.io.ByteArrayInputStream(text.encode("iso-8859-1"))
    try:
        properties.load(stream)
    except Exception:  # noqa: BLE001, py4j has one class for all of Java's exceptions
        with pytest.raises(ConfigError):
            parse_properties(text)
        return
    assert pairs(text) == {key: properties.getProperty(key) for key in properties.keySet()}


@given(st.dictionaries(st.text(), st.text()))
def test_escaped_text_is_read_back(entries: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in entries.items())
    assert pairs(text) == entries


def escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
