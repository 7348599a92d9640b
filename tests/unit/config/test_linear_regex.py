"""The matcher for clients' expressions has the same results as `re`, and is never slow."""

from __future__ import annotations

import re
import time
from itertools import product

import pytest

from tests.support.eventually import PATIENCE_S
from twinlog.config.regex.linear import linear_matcher
from twinlog.config.regex.reader import RegexProblem

NAMES = ["", *("".join(word) for size in range(1, 6) for word in product("ab.", repeat=size))]


@pytest.mark.parametrize(
    "expression",
    [
        *("", "a", "a*", "a+b?", "(a|b)*", "(?:a|b.)+", "[^a]b", r"[ab.]{2,3}", "a{2}", "a{0}b"),
        *("(a+)+b", "(a*)*", "(a?){3}b", "(|a)b", "a.*b", r"a\.b", r"\w+(\.\w+)*", "a{2,}b*?"),
        *("(a{0,2}){1,2}b", "()*a", "(a?b?)*", r"[\W]+a", "(ab|a)(b|)", "(a|(b|a)+)?"),
    ],
)
def test_it_matches_like_re(expression: str) -> None:
    matches, known = linear_matcher(expression), re.compile(expression)
    found = [name for name in NAMES if matches(name)]
    assert found == [name for name in NAMES if known.fullmatch(name)]


@pytest.mark.parametrize(
    "expression", ["(a+)+b", "(.*)*X", "(a|aa)+X", "(?:.?){60}X", ".*" * 50 + "X", "(?:a?){99}b"]
)
def test_no_expression_takes_long(expression: str) -> None:
    began = time.monotonic()
    assert not linear_matcher(expression)("a" * 249)
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("(", "missing"),
        ("(?=a)a", "is not supported"),
        (r"(a)\1", "is not supported"),
        ("(?>a)", "is not supported"),
        ("a*+", "is not supported"),
        ("^a$", "remove"),
        ("(?i)a", "flags"),
        ("(?i:a)", "flags"),
        ("(a{100}){100}", "more than 400"),
        ("a{99999999999}", "too large"),
        ("(" * 490 + "a" + ")" * 490, "too large"),
    ],
)
def test_patterns_that_are_not_regular_or_too_large_are_refused(expression: str, said: str) -> None:
    with pytest.raises(RegexProblem, match=said):
        linear_matcher(expression)
