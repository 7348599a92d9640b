"""Every code is raised somewhere in the source, is in the catalog, and is named in a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tools.pages import codes as codes_page
from twinlog.codes import (
    FLOW_STATES,
    GUARANTEES,
    PARTITION_STATES,
    AtRisk,
    FlowState,
    PartitionState,
    Retry,
    Trait,
    conditions,
    has,
    tables,
    with_trait,
)
from twinlog.config.keys.key_table import DEFINITIONS, OWN_PROCESS_NAMES
from twinlog.config.values.warnings import WarningCode
from twinlog.errors import AdoptionRefused, ConfigError, PartitionError
from twinlog.mirror.copy.partition import CopyState
from twinlog.mirror.copy.refusals import REFUSALS

ROOT: Final = Path(__file__).resolve().parents[2]
CATALOGUE: Final = ROOT / "src" / "twinlog" / "codes"
SOURCES: Final = sorted(
    path for path in (ROOT / "src" / "twinlog").rglob("*.py") if CATALOGUE not in path.parents
)
TESTS: Final = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
PAGE: Final = (ROOT / "docs" / "codes.md").read_text()

A_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{3,}")


def codes_of(tree: ast.AST) -> Iterator[str]:
    """Yield the values of all keyword arguments, attributes and defaults whose name is `code`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            named: dict[ast.arg, ast.expr | None] = {}
            named |= zip(node.args[::-1], node.defaults[::-1], strict=False)
            named |= zip(node.kwonlyargs, node.kw_defaults, strict=True)
            for argument, default in named.items():
                if argument.arg == "code" and isinstance(default, ast.Constant) and default.value:
                    yield str(default.value)
        match node:
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                found = code
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                found = code
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(code))):
                found = code
            case _:
                continue
        if A_CODE.fullmatch(found):
            yield found


class CodedCall(NamedTuple):
    """A call in the source that has an argument `code`."""

    function: str
    code: str
    fate: str
    """Name of a member of `Fate`, or empty if the call has none."""


class Said(NamedTuple):
    """Everything about codes in the source. It is collected only once, because parsing takes
    seconds.
    """

    codes: frozenset[str]
    literals: frozenset[str]
    """All string literals of the source, and the codes in brackets at their ends."""
    calls: tuple[CodedCall, ...]


@cache
def said() -> Said:
    codes, literals, calls = set[str](), set[str](), list[CodedCall]()
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        codes.update(codes_of(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
                literals.update(re.findall(r"\[([A-Z][A-Z0-9_]+)\]$", node.value))
            elif isinstance(node, ast.Call):
                keywords = {one.arg: one.value for one in node.keywords}
                code, fate = keywords.get("code"), keywords.get("fate")
                if isinstance(code, ast.Constant):
                    function = ast.unparse(node.func)
                    told = ast.unparse(fate) if fate else ""
                    calls.append(CodedCall(function, str(code.value), told))
    return Said(frozenset(codes), frozenset(literals), tuple(calls))


def raised() -> frozenset[str]:
    return frozenset({*said().codes, *WarningCode, *(code for code, _ in REFUSALS.values())})


@cache
def explained() -> frozenset[str]:
    return frozenset(conditions())


def fates() -> dict[str, set[str]]:
    """Return by code the arguments `fate` with which errors of this code are raised."""
    kinds = ("PartitionError", "LogFinding", "findings.LogFinding", "in_target", "self._wrong")
    found: dict[str, set[str]] = {}
    for call in said().calls:
        if call.function in kinds:
            found.setdefault(call.code, set()).add(call.fate)
    return found


def raised_by(*names: str) -> set[str]:
    """Return the codes in the source's calls of these classes."""
    return {call.code for call in said().calls if call.function in names}


def test_something_is_collected() -> None:
    assert {"GAP_WRITTEN", "USAGE", "SOURCE_GAP", "RECORD_TOO_LARGE", "DEAD_KEY"} <= raised()
    assert {"GAP_WRITTEN", "USAGE", "SOURCE_GAP", "RECORD_TOO_LARGE", "DEAD_KEY"} <= explained()


def test_every_code_is_explained() -> None:
    assert raised() - explained() == set()


def test_every_code_that_is_explained_is_raised() -> None:
    assert explained() - raised() - said().literals == set()


def test_every_code_is_named_in_a_test() -> None:
    tests = "\n".join(path.read_text() for path in TESTS)
    named = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", tests))
    assert (raised() | explained()) - named == set()


def test_codes_of_partition_errors_are_in_the_documented_tables() -> None:
    names = re.findall(r"`(\w+)`", PartitionError.__doc__ or "")
    assert names
    told = {code for name in names for row in tables()[name] for code in row.codes}
    assert raised_by("PartitionError") - told == set()


def test_the_page_is_up_to_date() -> None:
    assert codes_page.render() == PAGE, "run: python -m tools.pages"


def test_no_code_has_two_rows() -> None:
    codes = [code for rows in tables().values() for row in rows for code in row.codes]
    assert sorted(codes) == sorted(conditions())


def test_traits_belong_to_codes_of_partitions() -> None:
    of_partitions = {code for row in tables()["partition"] for code in row.codes}
    for trait in Trait:
        codes = with_trait(trait)
        assert codes, f"no code is {trait.name}"
        assert trait is Trait.AWAY or codes <= of_partitions


def test_implied_traits() -> None:
    assert has("GAP_WRITTEN", Trait.NOT_OURS)
    assert has("TOPIC_MISSING", Trait.ANOTHER_SOURCE)
    assert not has("TAKEN_OVER", Trait.NO_OFFSETS)
    assert not has("OF_NOBODY", Trait.NOT_OURS)


def test_codes_about_an_only_copy_have_a_side_at_risk() -> None:
    """For a code whose advice is to save records first, the catalog must state on which side they
    are at risk. The column "at risk" shows this side.
    """
    saved = {code for code, row in conditions().items() if "`twinlog export` first" in row.advice}
    saved |= with_trait(Trait.REPAIRABLE) | {"SOURCE_RECREATED", "TARGET_TRUNCATED"}
    assert {code for code in saved if conditions()[code].at_risk is AtRisk.NONE} == set()


def test_advice_names_keys_that_exist() -> None:
    known = {*DEFINITIONS, *OWN_PROCESS_NAMES}
    named = {
        (code, key)
        for code, row in conditions().items()
        for key in re.findall(r"twinlog(?:\.[a-z]+)+", f"{row.meaning} {row.advice}")
    }
    assert len(named) > 10
    assert {(code, key) for code, key in named if key not in known} == set()


def test_requests_have_a_status_and_nothing_else_has() -> None:
    assert all(row.status for row in tables()["request"])
    wished = {("REPLAYED",)}  # this code also occurs as the answer to the request `topic resume`
    assert {row.codes for row in conditions().values() if row.status} == wished | {
        row.codes for row in tables()["request"]
    }


def test_retries_of_partition_codes_match_the_fates_of_errors() -> None:
    of_partitions = {code: row.retry for row in tables()["partition"] for code in row.codes}
    known = {code: how for code, how in fates().items() if code in of_partitions}
    assert len(known) > 30
    soon = {code for code, how in known.items() if how == {"Fate.RETRIABLE"}}
    later = {code for code, how in known.items() if how == {""}}
    assert soon and later
    assert {code for code in soon if of_partitions[code] is not Retry.SOON} == set()
    assert {code for code in later if of_partitions[code] is Retry.SOON} == set()


def test_only_flow_codes_with_exit_code_2_are_not_retried() -> None:
    """Errors with exit code 2 are final. The supervisor retries all other codes of flows, except
    with `--once`.
    """
    assert ConfigError.exit_code == AdoptionRefused.exit_code == 2
    of_flows = {code: row.retry for row in tables()["flow"] for code in row.codes}
    final = raised_by("ConfigError", "AdoptionRefused") | {AdoptionRefused.code}
    assert {code for code, retry in of_flows.items() if retry is Retry.NO} == final & set(of_flows)


def test_only_lane_codes_of_a_process_are_retried() -> None:
    ended = [tables()[name] for name in ("process", "command", "dataframe", "request")]
    rows = [row for table in ended for row in table]
    again = {code for row in rows if row.retry is not Retry.NO for code in row.codes}
    lanes = {c for c in conditions() if c.startswith(("CHANNEL_", "LANE_"))}
    assert again == {"LEASE", "WAITING_FOR_SPARK"} | lanes
    assert {row.retry for row in tables()["warning"]} == {Retry.NO}


def test_every_state_has_its_meaning() -> None:
    assert set(FLOW_STATES) == set(FlowState)
    assert set(PARTITION_STATES) == set(PartitionState)
    assert all((*FLOW_STATES.values(), *PARTITION_STATES.values(), *GUARANTEES.values()))


def test_states_keep_their_names() -> None:
    """States must keep their names, because scripts read them in JSON and alerts match them as
    labels.
    """
    assert {state.value for state in FlowState} == {
        *("STARTING", "WAITING_FOR_SPARK", "RUNNING", "PARTLY_FAILED", "STANDBY", "DEGRADED"),
        *("THROTTLED", "PAUSED", "FENCED", "STOPPING", "STOPPED", "FAILED", "NOT_RUNNING"),
        "UNKNOWN",
    }
    assert {state.value for state in PartitionState} == {
        *("PENDING", "STARTING", "COPYING", "AT_END", "DRAINING", "DONE", "RETRYING", "FAILED"),
        *("PAUSED", "TAKEN_OVER", "RELEASED", "SOURCE_DELETED", "NEW", "BEHIND"),
        *("SOURCE_AWAY", "PROMOTED"),
    }


def test_states_of_copies_are_states_of_partitions() -> None:
    assert {state.value for state in CopyState} <= {state.value for state in PartitionState}
