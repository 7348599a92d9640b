"""No message and no page advises to delete data that may be the only copy before it is saved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from twinlog.codes import conditions
from twinlog.mirror import findings
from twinlog.mirror.findings import LogFinding, Span, sides
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.ports import LogEnds
from twinlog.model import TopicPartition

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = sorted((ROOT / "src" / "twinlog").rglob("*.py"))
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

TELLS_TO_DELETE: Final = re.compile(
    r"(?<!not )\bdelet(?:e|ing) (?:it|them|the|its|all|remote|that|both)\b", re.IGNORECASE
)
MAY_BE_DELETED: Final = re.compile(r"delete its offsets on B")
"""Pattern of texts about offsets of a group that was moved to A. Deleting these offsets loses no
record.
"""

HERE, THERE = TopicPartition("orders", 3), TopicPartition("A.orders", 3)


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield all texts that are no docstrings. Expressions within them are replaced by their
    source.
    """
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(one) for one in ast.walk(node) if one is not node)
            yield "".join(
                str(one.value) if isinstance(one, ast.Constant) else ast.unparse(one)
                for one in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings | parts
        ):
            yield node.value


def destroys(text: str) -> bool:
    """Return True if the text advises to delete something without saving it before."""
    found = TELLS_TO_DELETE.search(text)
    if found is None or MAY_BE_DELETED.search(text):
        return False
    return re.search(r"\bexport\b", text[: found.start()]) is None


def test_the_search_detects_such_advice() -> None:
    assert destroys("the target lost its log; delete the topic to copy it again")
    assert destroys("find the other producer, then delete the target topic")
    assert not destroys("save it: twinlog export FILE; then delete the target topic")
    assert not destroys("the source deleted upstream offsets")


def test_no_message_destroys() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for path in SOURCES
        if "delet" in (source := path.read_text()).lower()
        for text in messages(ast.parse(source))
        if destroys(text)
    }
    found |= {row.advice for row in conditions().values() if destroys(row.advice)}
    assert found == set()


def test_no_page_destroys() -> None:
    """No page advises to delete data that may be the only copy before the data is saved. Every row
    of a table and every paragraph is checked separately.
    """
    found = {
        f"{page.relative_to(ROOT)}: {text}"
        for page in PAGES
        for text in re.split(r"\n(?=[|-])|\n\n", page.read_text())
        if destroys(text)
    }
    assert found == set()


def ends(start: int, end: int) -> LogEnds:
    return LogEnds(log_start=start, log_end=end, high_watermark=end, leader_epoch=5)


RUNS = (Run(0, 100, 50), Run(10, 200, 60), Run(20, 300, 70))
"""Upstream offsets 100 to 109, 200 to 209, and 300 and later are at target offsets 50, 60 and
70.
"""


@pytest.mark.parametrize(
    ("log_start", "target_only"),
    [
        (0, None),
        (100, Span(55, 55)),
        (105, Span(55, 55)),
        (108, Span(55, 58)),
        (150, Span(55, 60)),
        (205, Span(55, 65)),
        (300, Span(55, 70)),
        (900, Span(55, 80)),
    ],
)
def test_offsets_that_only_the_target_has(log_start: int, target_only: Span | None) -> None:
    found = sides(ends(log_start, 900), ends(55, 80), RUNS)
    assert found.target_only == target_only
    said = str(found)
    assert f"upstream offsets [{log_start}, 900)" in said
    assert "the target holds [55, 80)" in said
    assert ("on the target only" in said) == (target_only is not None and not target_only.is_empty)


CODES = (
    "GAP_WRITTEN",
    "TARGET_TRUNCATED",
    "POSITION_REGRESSED",
    "EXTRA_RECORDS",
    "MM2_PLACE_UNKNOWN",
    "SOURCE_DIVERGED",
    "DIVERGED",
)
ALL = {
    **{code: LogFinding(code=code, what="[1, 2)", source=HERE, target=THERE) for code in CODES},
    "FOREIGN_DATA": findings.foreign_data(THERE, Span(1, 2)),
    "SOURCE_RECREATED": findings.source_recreated(HERE, THERE, Span(1, 2)),
}


@pytest.mark.parametrize("code", ALL)
def test_order_of_the_advice(code: str) -> None:
    """The advice has this order: the ranges of both sides, the command that saves them, and only
    then the deletion.
    """
    text = ALL[code].worded("A->B")
    ranges, command = text.index("[1, 2)"), text.index("twinlog export")
    anew = text.index("delete the target topic")
    assert ranges < command < text.index("Only then") < anew
    assert "--flow 'A->B' --side target --topic A.orders --partition 3 " in text


def test_records_that_no_side_has_cannot_be_exported() -> None:
    text = findings.source_truncated(HERE, Span(10, 30)).worded()
    assert "deleted upstream offsets [10, 30)" in text
    assert "neither side" in text
    assert "export" not in text


def test_no_advice_to_delete_records_that_a_slow_tier_may_have() -> None:
    stalled = (
        "orders-3: the source returns no records from upstream offset 7 on, although its log ends "
        "at 9"
    )
    slow = findings.tier_stalled_error(stalled, "node 1").message
    assert "delet" not in slow
    assert "accept" not in slow
    assert "remote.fetch.max.wait.ms" in slow
    damaged = findings.source_stalled(stalled, HERE, "node 1").worded()
    assert damaged.index("twinlog export") < damaged.index("Only then delete the records")


def test_a_topic_with_other_partitions_is_saved_first() -> None:
    text = findings.partitions_differ(HERE, THERE, "kept its partitions").worded("A->B")
    assert text.index("twinlog export FILE --flow 'A->B'") < text.index("Only then")
    assert text.index("Only then") < text.index("delete")
