"""The documentation is current: it has every code and every key, and all its links work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.pages import configuration, man, strimzi
from tools.pages.configuration import TESTED
from twinlog.cli.main import COMMANDS
from twinlog.config.advice.explanation import CLIENT_MEANINGS
from twinlog.config.flow.tuning import MOST_REQUEST_BYTES
from twinlog.config.keys.key_table import DEFINITIONS, OWN_PROCESS_NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def test_the_configuration_page_is_current() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == configuration.render(), "run: python -m tools.pages"


def test_the_page_of_strimzis_fields_is_current() -> None:
    page = (ROOT / "docs" / "strimzi.md").read_text()
    assert page == strimzi.render(), "run: python -m tools.pages"


def test_the_man_page_equals_the_help_of_the_commands() -> None:
    assert (ROOT / man.PATH).read_text() == man.render(), "run: python -m tools.pages"


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_the_man_page_is_read_without_a_warning() -> None:
    command = ["groff", "-ww", "-man", "-Tutf8", "-P-c", str(ROOT / man.PATH)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    plain = re.sub(".\b", "", done.stdout)  # bold letters are printed twice
    assert "twinlog flow promote [OPTIONS] FILE" in plain


def test_keys_that_are_tuned_for_mirror_maker_2_have_a_line_each() -> None:
    page = (ROOT / "docs" / "mirror-maker-2.md").read_text()
    rows = dict(re.findall(r"^\| (`B\.[^|]*`) \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == [
        "`B.producer.acks`",
        "`B.producer.linger.ms`",
        "`B.offset.flush.interval.ms`, `B.offset.flush.timeout.ms`",
        "`B.producer.compression.type`",
        "`B.producer.max.request.size`",
    ]
    assert all("no effect" in rows[key] for key in list(rows)[:3])
    assert "B.twinlog.compression = enforce" in rows["`B.producer.compression.type`"]
    assert f"above {MOST_REQUEST_BYTES >> 20} MiB count as" in rows["`B.producer.max.request.size`"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for link, anchor in LINK.findall(page.read_text()):
        there = page.parent / link if link else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            missing.append(f"{link}#{anchor}")
    assert missing == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub creates them."""
    headings = (one.lower().replace(" ", "-") for one in HEADING.findall(page.read_text()))
    return {re.sub(r"[^\w-]", "", one) for one in headings}


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_decision_that_is_named_by_number_is_the_one_that_the_link_leads_to() -> None:
    named = re.compile(r"\[(?:ADR|decision)\s+(\d+)\]\(([^)]*?(\d{4})-[^)]*)\)")
    found = [(page.name, one) for page in PAGES for one in named.findall(page.read_text())]
    assert len(found) > 10
    assert [(page, link) for page, (said, link, meant) in found if int(said) != int(meant)] == []


def test_the_list_of_decisions_has_all_with_their_titles() -> None:
    folder = ROOT / "docs" / "adr"
    titles = {path.name: path.read_text().split("\n")[0] for path in folder.glob("[0-9]*.md")}
    rows = {
        f"| [{int(name[:4])}]({name}) | {title.partition('. ')[2]} |"
        for name, title in titles.items()
    }
    assert rows - {*(folder / "README.md").read_text().splitlines()} == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_command_line_page_names_every_command() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    assert {name for name in COMMANDS if f"`twinlog {name}" not in text} == set()


def test_the_tests_that_the_configuration_page_names_are_about_their_keys() -> None:
    wrong = []
    for key, file in TESTED.items():
        path = ROOT / "tests" / file
        name = re.sub(r"^(consumer|producer|admin)\.", "", key)
        if not path.is_file() or name not in path.read_text():
            wrong.append(f"{key}: {file}")
    assert wrong == []
    known = {
        *DEFINITIONS,
        *OWN_PROCESS_NAMES,
        *(f"{row.role}.{row.name}" for row in CLIENT_MEANINGS),
    }
    assert set(TESTED) - known == set()
