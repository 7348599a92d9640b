"""The documents are current: every code and key is in them, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from twinlog.cli.main import COMMANDS
from twinlog.config.keys.client_meanings import CLIENT_MEANINGS
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.config.pages import strimzi_page
from twinlog.config.pages.keys_page import render
from twinlog.config.pages.proofs import TESTED
from twinlog.config.values.warnings import WarningCode
from twinlog.control.watch.snapshot import FlowSnapshot

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted((ROOT / "src" / "twinlog").rglob("*.py"))
PAGE_OF_CODES = (ROOT / "docs" / "codes.md").read_text()

LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
CODE = re.compile(r'\bcode(?:: str)? ?= ?"([A-Z][A-Z_]+)"')


def codes() -> set[str]:
    """Every stable code of ours; Kafka's own error names speak for themselves."""
    return {code for path in SOURCES for code in CODE.findall(path.read_text())}


def test_every_code_is_explained() -> None:
    explained = set(re.findall(r"`([A-Z_]+)`", PAGE_OF_CODES))
    assert {*codes(), *WarningCode} - explained == set()


def test_no_code_is_explained_that_does_not_exist() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    table = PAGE_OF_CODES[PAGE_OF_CODES.index("## Codes") :]
    first_cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    explained = {code for cell in first_cells for code in re.findall(r"`([A-Z_]+)`", cell)}
    assert {code for code in explained if f'"{code}"' not in text and code not in text} == set()


def test_the_configuration_page_is_current() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == render(), "run: python -m twinlog.config.pages.keys_page > docs/configuration.md"


def test_the_page_of_strimzis_fields_is_current() -> None:
    page = (ROOT / "docs" / "strimzi.md").read_text()
    assert page == strimzi_page.render(), (
        "run: python -m twinlog.config.pages.strimzi_page > docs/..."
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_flow_and_partition_states_are_explained() -> None:
    states = {"STARTING", "RUNNING", "PARTLY_FAILED", "DEGRADED", "THROTTLED", "STOPPED", "FAILED"}
    states |= {"STANDBY"}
    states |= {"PENDING", "COPYING", "AT_END", "DRAINING", "DONE", "RETRYING", "TAKEN_OVER"}
    states |= {"RELEASED", "NEW", "BEHIND", "NOT_RUNNING"}
    assert {state for state in states if f"`{state}`" not in PAGE_OF_CODES} == set()
    assert "state" in FlowSnapshot.__slots__


def test_the_readme_is_short_and_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert {name for name in COMMANDS if f"`twinlog {name}" not in text} == set()


def test_the_tests_that_the_configuration_page_names_are_about_their_keys() -> None:
    wrong = []
    for key, file in TESTED.items():
        path = ROOT / "tests" / file
        name = re.sub(r"^(consumer|producer|admin)\.", "", key)
        if not path.is_file() or name not in path.read_text():
            wrong.append(f"{key}: {file}")
    assert wrong == []
    known = {*DEFINITIONS, *(f"{row.role}.{row.name}" for row in CLIENT_MEANINGS)}
    assert set(TESTED) - known == set()
