"""The structure of the repository: lengths of files, exported names, and forbidden words."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MAX_LINES = 800

# written in pieces, so that this file does not contain the words
FORBIDDEN = [
    r"(?<![\w.$}/-])/(work|home|root|Users)/",  # paths of one machine
    "repo1" + r"\.maven",
    "pythonhosted" + r"\.org",
    "pypi" + r"\.org/simple",
    r"--(extra-)?index-url (?!is\b)\S",
]


def tracked(*patterns: str) -> list[Path]:
    """Return the files in the repository that match the patterns, including new ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


class Module(NamedTuple):
    """The facts about a module of the source that the tests need."""

    path: Path
    docstring: str
    is_empty: bool
    methods: tuple[tuple[str, int], ...]
    """Name of each class, with its number of methods."""
    public: tuple[str, ...]
    """Names of the public classes and functions."""


@cache
def modules() -> dict[Path, Module]:
    """Return the modules of the source. They are parsed only once, because parsing takes
    seconds.
    """
    return {path: _module(path) for path in tracked("src/*.py", "src/**/*.py")}


def _module(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in _statements(tree) if isinstance(node, ast.ClassDef)]
    defined = [node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    return Module(
        path=path,
        docstring=ast.get_docstring(tree) or "",
        is_empty=not tree.body,
        methods=tuple(
            (one.name, sum(isinstance(part, FUNCTIONS) for part in one.body)) for one in classes
        ),
        public=tuple(one.name for one in defined if not one.name.startswith("_")),
    )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node, without the expressions in them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield child
            yield from _statements(child)


def test_no_file_is_too_long() -> None:
    long = {str(path.relative_to(ROOT)): lines_of(path) for path in tracked("*.py")}
    assert {name: lines for name, lines in long.items() if lines > MAX_LINES} == {}


def test_tests_wait_for_conditions() -> None:
    """A test that sleeps for some seconds gives the reason on the same line
    (tests/support/eventually.py).
    """
    bare = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in tracked("tests/*.py")
        if "sleep" in (text := path.read_text(encoding="utf-8"))
        for line in bare_sleeps(text)
    }
    assert bare == set()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("time.sleep(1)", [1]),
        ("for _ in range(9):\n    sleep(1)", [2]),
        ("while waits():\n    def look():\n        sleep(1)", [3]),
        ("time.sleep(1)  # why", []),
        ("while waits():\n    if more():\n        time.sleep(1)", []),
    ],
)
def test_a_bare_sleep_is_found(text: str, lines: list[int]) -> None:
    assert bare_sleeps(text) == lines


SLEEPS = ("sleep", "time.sleep")


def bare_sleeps(text: str) -> list[int]:
    """Return the lines that sleep without a reason, and that are not in a loop which ends with a
    condition.
    """
    tree, shown = ast.parse(text), text.splitlines()
    return [node.lineno for node in _sleeps(tree) if "#" not in shown[node.lineno - 1]]


def _sleeps(node: ast.AST, *, polls: bool = False) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        if not polls and isinstance(child, ast.Call) and ast.unparse(child.func) in SLEEPS:
            yield child
        is_defined = isinstance(child, (ast.FunctionDef, ast.Lambda))
        yield from _sleeps(child, polls=isinstance(child, ast.While) or (polls and not is_defined))


NOT_A_LANE_S = re.compile(
    r"\btime\.(?:time|monotonic|perf_counter)(?:_ns)?\b|\bboot_clock\b|\bdatetime\b|from time "
)


def test_a_lane_goes_by_the_clock_that_it_is_given() -> None:
    lane = tracked("src/twinlog/lane/*.py")
    assert len(lane) > 20
    assert NOT_A_LANE_S.search("now = time.monotonic()")
    assert NOT_A_LANE_S.search("int(time.time() * 1000)")
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in lane
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NOT_A_LANE_S.search(line)
    }
    assert found == set()


MAX_METHODS, MAX_METHODS_OF_ONE_IDEA = 20, 40
ONE_IDEA = {
    # a table, in which each method is a row
    "ManagedFlow": "the steps of a flow's life, as `phases` lists them",
    "ClusterClient": "what is asked of a cluster, a request each",
    "Partition": "what happens to a partition, and what that makes of it",
    "LocalCluster": "what a test or a demo does to a cluster",
    # an exchange with a broker, whose order matters
    "Connection": "a connection's bytes, handshake and answers",
    "Membership": "the protocol of a consumer group",
    # the copy, whose state every rule reads
    "Assignments": "what a lane has, from take to release",
    "ClusterSide": "leaders and connections, for both sides",
    "SourceSide": "fetching",
    "PartitionCopy": "positions, sequences and answers of one partition",
    "StartSearch": "where a copy resumes, question by question",
    "LogWalk": "both logs of a partition compared",
}
"""Classes that may have more methods, with the reason for each."""


def test_no_class_has_several_ideas() -> None:
    found = {
        name: methods
        for module in modules().values()
        for name, methods in module.methods
        if methods > MAX_METHODS
    }
    assert {*found} == {*ONE_IDEA}, "split it, or say why not; take from the list what is smaller"
    assert max(found.values()) <= MAX_METHODS_OF_ONE_IDEA


def test_every_folder_describes_its_content() -> None:
    for path in tracked("src/twinlog/**/__init__.py"):
        said = modules()[path].docstring
        assert said, path
        assert "TODO" not in said, path


def exporting_modules() -> list[str]:
    """Return the modules with an `__all__`. A module without it exports every public name."""
    source = ROOT / "src"
    found = []
    for path in tracked("src/**/*.py", "src/*.py"):
        if "\n__all__ = " not in path.read_text(encoding="utf-8"):
            continue
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found.append(name.removesuffix(".__init__"))
    return sorted(found)


@pytest.mark.parametrize("name", exporting_modules())
def test_exported_names_are_sorted_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    assert list(exported) == sorted(exported, key=ruff_order)
    assert [each for each in exported if not hasattr(module, each)] == []
    # `__all__` has every public class and function that is defined in the module
    assert [each for each in public_definitions(name) if each not in exported] == []


def ruff_order(name: str) -> tuple[int, str]:
    """Return a sort key with which constants come first, then classes, then other names (ruff's
    RUF022).
    """
    if name.isupper():
        return (0, name)
    return (1, name) if name[:1].isupper() else (2, name)


def public_definitions(name: str) -> list[str]:
    path = ROOT / "src" / Path(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return [*modules()[file].public]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_machine_path_or_registry_in_any_file(pattern: str) -> None:
    guilty = []
    for path in tracked():
        if path.suffix in {".png", ".jks", ".p12", ".gz", ".bin"} or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        guilty += [f"{path.relative_to(ROOT)}: {match[0]}" for match in re.finditer(pattern, text)]
    assert guilty == []


def test_every_module_says_its_idea_first() -> None:
    silent = [
        str(one.path.relative_to(ROOT))
        for one in modules().values()
        if not one.is_empty and not one.docstring
    ]
    assert silent == []


def test_locks_name_the_same_versions() -> None:
    """Every package of the runtime lock has the same version in the development lock, so the tested
    versions are those that users install.
    """
    runtime, development = (
        set(re.findall(r"^([\w.-]+==[^\s\\]+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert runtime - development == set()


def test_lock_covers_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = (ROOT / "requirements.lock").read_text()
    wanted = [re.split(r"[^\w-]", each)[0] for each in project["dependencies"]]
    assert [each for each in wanted if f"\n{each}==" not in f"\n{locked}"] == []


def test_few_tests_start_a_spark_of_their_own() -> None:
    """Few tests start their own Spark, because each start takes seconds and continuous integration
    has a time limit. Even fewer of them may have the mark `witness`, because the gate
    (`scripts/test`) runs these.
    """
    marked = [
        p.read_text()
        for p in sorted((ROOT / "tests").rglob("test_*.py"))
        if "unit" not in p.parts and "mark.spark" in p.read_text()
    ]
    assert len(marked) > 3
    assert sum(text.count("mark.witness(") for text in marked) <= 14
    assert sum(text.count("\ndef test_") for text in marked) <= 62


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules().values():
        for name, _ in module.methods:
            if not name.startswith("_"):
                homes.setdefault(name, []).append(module.path.name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
