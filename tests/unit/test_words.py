"""People read the field's words: what Kafka's documentation says of the same thing."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if path.parent.name != "adr"
)
SOURCES: Final = sorted((ROOT / "src" / "twinlog").rglob("*.py"))
SCREENS: Final = sorted((ROOT / "src" / "twinlog").rglob("*.js"))

INSTEAD: Final = {
    r"goes on|go on|going on|went on|gone on": "resume, continue, move on",
    r"anew": "again, re-create, rewrite, re-encode, start over",
    r"stands? still|stood still": "has stopped, stops",
    r"tak(?:e|es|ing|en) away|took away": "remove, delete",
    r"looked at": "checked, compared",
    r"(?:is|are|was|were) told(?! to\b)": "is reported, is logged, gets",
}
"""By expression, what to write instead. `is told to` is an order, and stays."""


SAYS_NOTHING: Final = {"Place", "Look", "Holder", "Judge", "Manager", "Helper", "Util"}
"""Of a class whole, or its last word: a bound, a search, a check, a plan says what it is."""


NO_VERB: Final = re.compile(
    r"(?:^|_)(?:look(?:s|ed)?(?!_(?:up|around|behind))|tells?|told|places?|placed|anew)(?:_|$)"
)
"""In names of functions; `look_up` is the field's, `look_behind` one of regular expressions."""


NO_NAME: Final = re.compile(
    rf"{NO_VERB.pattern}|"
    r"(?:^|_)(?:looking|telling|(?:go|goes|going|went)_on|(?:takes?|taken|took)_away)(?:_|$)",
    re.IGNORECASE,
)
"""In names of anything: modules, parameters, attributes, variables, constants."""


PICKLED: Final = {"placed_among"}
"""Of what Spark's driver and its tasks exchange: such a name stays."""


NO_JS_WORD: Final = re.compile(r"look(?:s|ed)?|tells?|told|places?|placed", re.IGNORECASE)
"""Of names like `aNameOfWords`."""


def found_in(text: str) -> list[str]:
    """What stands there and should not, with the words to choose from."""
    return [
        f"...{text[max(0, match.start() - 40) : match.end() + 20]}... -> {better}"
        for banned, better in INSTEAD.items()
        for match in re.finditer(rf"\b(?:{banned})\b", text, re.IGNORECASE)
    ]


def texts(tree: ast.Module) -> Iterator[str]:
    """Messages and help: strings that are no documentation of the code, and click's docstrings."""
    documentation: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documentation |= {id(one.value) for one in node.body if isinstance(one, ast.Expr)}
        if isinstance(node, ast.FunctionDef) and any(
            "click" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            documentation -= {id(one.value) for one in node.body if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                yield text


def remarks(source: str) -> Iterator[str]:
    """Comments and docstrings, each on one line; without what stands in backticks."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_text = token.type == tokenize.STRING and '"""' in token.string[:4]
        if is_text or token.type == tokenize.COMMENT:
            yield re.sub(r"`[^`\n]*`|\s+(?:# )?", " ", token.string)


def every_name(tree: ast.Module) -> Iterator[str]:
    """What a module gives a name to."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.alias(asname=str(name)) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def js_names(source: str) -> Iterator[str]:
    """Names in a script, without texts and comments; its attributes are REST's."""
    code = re.sub(r"""/\*.*?\*/|//[^\n]*|"[^"\n]*"|`[^`]*`""", " ", source, flags=re.DOTALL)
    yield from re.findall(r"(?<![\w.])[A-Za-z_]\w*", code)


def is_wrong_in_js(name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return any(NO_JS_WORD.fullmatch(word) for word in words)


def test_the_search_finds_what_it_is_for() -> None:
    assert found_in("the copy goes on where it stands")
    assert found_in("The partition stands still")
    assert found_in("what was lost is told")
    assert not found_in("nobody is told to delete it; it resumes, and has stopped")
    tree = ast.parse('"""It goes on."""\nclass A:\n    x: int\n    """anew"""\nlog("made anew")\n')
    assert [*texts(tree)] == ["made anew"]
    help_text = '@click.command("run")\ndef run():\n    """It goes on."""\n'
    assert {*texts(ast.parse(help_text))} == {"run", "It goes on."}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_speak_the_field_s_words(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`|\([^)\s]*\.md#[^)]*\)", "", page.read_text())
    assert found_in(re.sub(r"\s+", " ", text)) == []


def test_messages_and_help_speak_the_field_s_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {one}"
        for path in SOURCES
        for text in texts(ast.parse(path.read_text()))
        for one in found_in(re.sub(r"\s+", " ", text))
    ]
    assert found == []


def test_comments_speak_the_field_s_words() -> None:
    assert found_in(*remarks("x = 1  # made anew\n"))
    assert found_in(*remarks('def f():\n    """It goes\n    on."""\n'))
    assert not found_in(*remarks('"""`anew`: a name."""\n'))
    found = [
        f"{path.relative_to(ROOT)}: {one}"
        for path in SOURCES
        for text in remarks(path.read_text())
        for one in found_in(text)
    ]
    assert found == []


def test_screens_speak_the_field_s_words() -> None:
    assert SCREENS
    found = {one.name: found_in(re.sub(r"\s+", " ", one.read_text())) for one in SCREENS}
    assert not any(found.values()), found


def test_classes_are_nouns_of_the_field() -> None:
    names = {
        f"{path.relative_to(ROOT)}: {node.name}": re.findall("[A-Z][a-z]*", node.name)[-1]
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert len(names) > 500
    assert {name for name, last in names.items() if last in SAYS_NOTHING} == set()


def test_functions_are_verbs_and_nouns_of_the_field() -> None:
    assert all(NO_VERB.search(name) for name in ("look", "_look_again", "tell_once", "placed"))
    assert not any(NO_VERB.search(name) for name in ("look_up", "replace", "placement", "hold"))
    names = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(names) > 3000
    assert [name for name in names if NO_VERB.search(name.split(": ")[1])] == []


def test_names_are_of_the_field() -> None:
    code = (
        "import a as told\nLOOK_S: int = 1\ndef f(x, *, tells): self._told = places = look.told\n"
    )
    wrong = [name for name in every_name(ast.parse(code)) if NO_NAME.search(name)]
    assert sorted(wrong) == ["LOOK_S", "_told", "places", "tells", "told"]
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in [path.stem, *every_name(ast.parse(path.read_text()))]
        if name not in PICKLED
    ]
    assert len(found) > 10_000
    assert [name for name in found if NO_NAME.search(name.split(": ")[1])] == []


def test_names_in_scripts_are_of_the_field() -> None:
    code = 'const look = one.places; // told\nreplaceChildren("told", toldBy, `${a} told`)'
    assert [name for name in js_names(code) if is_wrong_in_js(name)] == ["look", "toldBy"]
    found = [
        f"{path.name}: {name}"
        for path in SCREENS
        for name in [path.stem, *js_names(path.read_text())]
        if is_wrong_in_js(name)
    ]
    assert found == []
