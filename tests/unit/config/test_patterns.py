"""Java's regular expressions in filters. The expressions of a list are joined, and must match whole
names.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinlog.config.regex.patterns import compile_java, compile_names
from twinlog.config.regex.reader import RegexProblem


def matches(pattern: str, name: str) -> bool:
    return compile_java(pattern).fullmatch(name) is not None


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        (".*", ["", "a.b-c_d"], ["a\nb", "a\u2028"]),
        ("orders", ["orders"], ["orders2", "my.orders", "ORDERS"]),
        ("(?s).*", ["a\nb"], []),
        ("orders|payments", ["orders", "payments"], ["orders|payments"]),
        (r"mm2.*\.internal", ["mm2-x.internal", "mm2.internal"], ["mm2-internal"]),
        ("(?i)orders|b", ["ORDERS", "B"], ["c"]),
        ("(a(?i)b|c)d", ["abd", "aBd", "Cd"], ["abD", "Ad"]),
        ("(?i:a)b", ["Ab"], ["aB"]),
        ("(?i)(?-i)a", ["a"], ["A"]),
        ("(?i)k", ["K"], ["\u212a"]),
        (r"\d+", ["12"], ["\u0661"]),
        (r"\w", ["a", "_"], ["\xe9"]),
        (r"a\hb", ["a b", "a\xa0b"], ["a\nb"]),
        (r"a\vb", ["a\nb", "a\x0bb"], ["a b"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb"]),
        (r"\Q[x]", ["[x]"], ["x"]),
        (r"\p{Alpha}+\P{Digit}", ["ab-"], ["ab1", "1"]),
        ("[a-z&&[^aeiou]]+", ["xyz"], ["xa"]),
        ("[a-c[x-z]]+", ["ax"], ["m"]),
        ("[^a[b]]", ["c"], ["a", "b"]),
        (r"[\w.-]+", ["a.b-c_1"], ["a b"]),
        (r"[\Q^]\E]+", ["^]"], ["a"]),
        ("[]a]+", ["]a"], ["b"]),
        ("a++b", ["aab"], ["b"]),
        (".*+b", [], ["ab"]),
        ("(?>a|ab)c", ["ac"], ["abc"]),
        (r"(?<n>a+)-\k<n>", ["aa-aa"], ["aa-a"]),
        (r"(a)(b)\2\1", ["abba"], ["abab"]),
        (r"(?<!x)a", ["a"], ["xa"]),
        ("^a$", ["a", "a"], ["a "]),
        (r"a\z", ["a"], []),
        (r"\x41\u0042\x{43}\0104\cA", ["ABCD\x01"], []),
        ("(?x) a b # no\n c", ["abc"], ["a b c"]),
        ("^(?!.*(heartbeats|)).*$", [], ["", "a", "heartbeats"]),
        ("a{2}b{1,}c{0,2}", ["aab", "aabbcc"], ["ab", "aabccc"]),
        ("}]", ["}]"], []),
        ("(|a)b||c", ["b", "ab", "", "c"], ["a"]),
    ],
)
def test_has_the_meaning_of_java(pattern: str, hits: list[str], misses: list[str]) -> None:
    assert [name for name in hits if not matches(pattern, name)] == []
    assert [name for name in misses if matches(pattern, name)] == []


@pytest.mark.parametrize(
    ("pattern", "column", "reason"),
    [
        ("*", 1, "nothing before it"),
        ("a**", 3, "nothing before it"),
        ("a|+", 3, "nothing before it"),
        ("a{,2}", 2, "must start a repetition"),
        ("ab{x", 3, "must start a repetition"),
        ("a{3,2}", 2, "empty"),
        ("(ab", 1, "not closed"),
        ("ab)", 3, "has no opening ("),
        ("a[bc", 2, "not closed"),
        ("[z-a]", 2, "empty"),
        (r"a\y", 2, "not a supported escape"),
        (r"\p{L}", 1, "Unicode tables"),
        (r"x\p{IsLatin}", 2, "Unicode tables"),
        (r"\G", 1, "not a supported escape"),
        (r"\R", 1, "not a supported escape"),
        ("(?u)a", 3, "not a supported flag"),
        ("(?U)a", 3, "not a supported flag"),
        ("(?Pa)", 3, "not a group or flag in Java"),
        ("(?#a)", 3, "not a group or flag in Java"),
        (r"\1(a)", 1, "ends before it"),
        (r"(a\1)", 3, "ends before it"),
        (r"\k<n>", 1, "ends before it"),
        ("(?<n>a)(?<n>b)", 11, "two groups"),
        ("a(?<=b+)c", 2, "fixed-width"),
        ("[a&&[b]c]", 9, "each side of &&"),
        ("[a&&]", 5, "each side of &&"),
        ("a\\", 3, "ends too early"),
        (r"\x4", 3, "hexadecimal"),
        ("a{99999999999}", 2, "too large"),
    ],
)
def test_untranslatable_patterns_are_refused_with_their_column(
    pattern: str, column: int, reason: str
) -> None:
    with pytest.raises(RegexProblem) as caught:
        compile_java(pattern)
    assert reason in caught.value.reason
    assert column == caught.value.column


def test_a_list_is_one_expression() -> None:
    # MirrorMaker 2 joins the parts again, so a group may contain the comma at which it splits
    assert compile_names(["(foo", "bar)"]).matches("bar")
    both = compile_names(["topic-1", "topic-2"])
    assert [both.matches(name) for name in ("topic-1", "topic-2", "topic-12")] == [
        True,
        True,
        False,
    ]


def test_no_entries_match_nothing() -> None:
    assert not compile_names([]).matches("")
    assert not compile_names([]).matches("a")


def test_a_lone_star_is_everything() -> None:
    assert compile_names(["*"]).matches("anything")


TOKENS = [
    *"abAB1.-_*+?|()[]{}^$&#: ",
    *("(?:", "(?i)", "(?-i)", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?x)", "(?s)"),
    *("(?m)", "(?d)", "[^", "&&", "{2}", "{1,}", "{0,2}", "\\d", "\\w", "\\D", "\\S", "\\h", "\\v"),
    *("\\b", "\\B", "\\z", "\\Z", "\\A", "\\Q", "\\E", "\\.", "\\]", "\\p{Alpha}", "\\P{Lower}"),
    *("\\x41", "\\u0041", "\\t", "a-b", "A-z", "[a-b]", "[^a]", ".*", "\\1", "(a)", "+?", "*+"),
]
# only US-ASCII, because versions of Java differ in \b next to other characters
NAMES = [
    *("", "a", "b", "A", "B", "1", ".", "-", "_", "ab", "aB", "aa", "aab", "bab", "a.b", "a-b"),
    *("abab", "aaaa", "\n", "a\n", "a\r\n", "\r\n", "a\nb", "\t", "A1", "&", "^", "]", "[", " "),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(pattern=st.lists(st.sampled_from(TOKENS), min_size=1, max_size=8).map("".join))
def test_agrees_with_java_util_regex_or_refuses(java: Any, pattern: str) -> None:
    try:
        ours = compile_java(pattern)
    except RegexProblem:
        return
    theirs = java.java.util.regex.Pattern
    expected = [name for name in NAMES if theirs.matches(pattern, name)]
    assert expected == [name for name in NAMES if ours.fullmatch(name)]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+-orders",
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+b",
        "(.*a){1,}b",
        "(.*|x)*",
        r"([\w.]+\.?)*x",
        "((a+)b?)*c",
        "(?i)(a|A)*b",
        "x|y|(?:[a-z]+-?)+z",
        "((ab)*)*c",
        "(a?b?)*c",
        "([^.]*)*x",
        "((a*|b*)c)*d",
        "((?>a)|a)*b",
        "(a(b?)?)*x",
    ],
)
def test_a_repetition_that_would_never_end_is_refused(pattern: str) -> None:
    with pytest.raises(RegexProblem, match="can match a name in too many ways"):
        compile_java(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        ".*",
        "a.*|b.*",
        r"[^.]*\.x",
        r"([a-z]+\.)*orders",
        r"(\w+-)+v\d+",
        "(team-(a|b)-.*)",
        "(orders|payments)+",
        "([0-9]{4}-?)+",
        "([a-f0-9]{2})*",
        "(?!(a|b).*).*",
        "^(?!.*(heartbeats|)).*$",
        "(a+)?b",
        "(a++)+b",
        r"((prod|test)\.)?[a-z-]+(\.v[0-9]+)*",
        "(ab*c)*",
        "(?:.*,)?x",
    ],
)
def test_patterns_that_read_a_name_in_one_way_are_kept(pattern: str) -> None:
    compile_java(pattern)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(["a", "b", "(a|b)", "[ab]", "a+", "b*", "a?", "(ab)*"]),
        min_size=1,
        max_size=4,
    ),
    st.text("ab", max_size=20),
)
def test_accepted_patterns_match_in_bounded_time(parts: list[str], name: str) -> None:
    try:
        pattern = compile_java(f"({''.join(parts)})*c")
    except RegexProblem:
        return
    # ends within pytest's timeout: an exponential match of 21 characters takes minutes
    pattern.fullmatch(name * 3 + "d")
