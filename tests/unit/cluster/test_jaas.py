"""JAAS configurations are parsed as by Kafka's JaasConfig, with which the accepted cases were
tested.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.security.security_keys import BrokenJaas, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            r"""M required username="a\"b" password='x\\y';""",
            {"username": 'a"b', "password": r"x\y"},
        ),
        ("M required password=abc123;", {"password": "abc123"}),
        ('M required p="";', {"p": ""}),
        ('M required p="a\\u0041\\101\\n" ;', {"p": "au0041A\n"}),
        ("M REQUIRED p=a-b.c$d_e;", {"p": "a-b.c$d_e"}),
        ('M required p="x" p="y";', {"p": "y"}),
        ("M required;", {}),
        ('M required a.b.c="x";', {"a.b.c": "x"}),
        ('M required "q k"=x;', {"q k": "x"}),
        ("M required p=é€x;", {"p": "é€x"}),
        ("M required p=a//c\n;", {"p": "a"}),
        ("M required /* x */ p=a;", {"p": "a"}),
        ("M required 'p'=x;", {"p": "x"}),
        ("'M' required p=x;", {"p": "x"}),
        ('M required p="a;b=c#d";', {"p": "a;b=c#d"}),
        ('M required p = "x"\n\tq\t=\t"y" ; // end', {"p": "x", "q": "y"}),
        ("M sufficient p=x;", {"p": "x"}),
    ],
)
def test_valid_configurations_are_read_as_by_java(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == "M"
    assert module.options == options


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "is empty"),
        ("// nothing", "is empty"),
        ("M", "control flag"),
        ("M required", "does not end with ';'"),
        ('M required p="x"', "does not end with ';': add one after the value of p"),
        ("M bogus p=x;", "not a control flag"),
        ("M required p=123;", "a number without quotes"),
        ("M required p=.5;", "a number without quotes"),
        ("M required p=1a;", "a number without quotes"),
        ("M required p= ;", 'write p="value"'),
        ("M required p=#;", "needs quotes"),
        ("M required x;", "no '='"),
        ("M required p=x; ;", "exactly one login module"),
        ("M required p=x; N required q=y;", "exactly one login module"),
        ('M required p="abc;', "no closing quote"),
        ('M required p="a\nb";', "no closing quote"),
        ("M required p=a/b c=d;", "does not end with ';'"),
    ],
)
def test_errors_name_the_position(text: str, hint: str) -> None:
    with pytest.raises(BrokenJaas) as caught:
        parse_jaas(text)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'M required password="hunter2" more hunter2;',
        "M required password=abc#hunter2;",
        "M required password=abc hunter2;",
        'M required password="hunter2',
        'M required password="hunter2"; hunter2',
        "M hunter2 password=x;",
    ],
)
def test_errors_never_contain_a_possible_password(text: str) -> None:
    with pytest.raises(BrokenJaas) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)


def test_repr_has_no_values() -> None:
    assert "hunter2" not in repr(parse_jaas('M required password="hunter2";'))


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
def test_any_password_survives_quoting(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    module = parse_jaas(f'M required password="{quoted}";')
    assert module.options["password"] == password


@given(st.text())
def test_any_text_is_read_or_rejected(text: str) -> None:
    with suppress(BrokenJaas):
        parse_jaas("M required " + text)
