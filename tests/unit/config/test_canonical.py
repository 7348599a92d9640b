"""Any accepted file means the same after it was converted to mm2.properties and read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.config_examples import (
    EXAMPLES,
    EXAMPLES_SAY,
    RESOURCES,
    RESOURCES_SAY,
    effective,
    example,
)
from twinlog.config.config_file import canonical, read_raw
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.keys.key_table import DEFINITIONS, RENAMED
from twinlog.config.load import load
from twinlog.config.values.origin import Setting


def converted(path: Path, aliases: list[str], folder: Path, secrets: Path | None = None) -> Path:
    out = folder / "converted.properties"
    out.write_text(canonical(read_raw(path, secrets).settings, aliases), encoding="ascii")
    return out


@pytest.mark.parametrize("name", EXAMPLES_SAY)
def test_a_properties_file_means_the_same_once_converted(name: str, tmp_path: Path) -> None:
    path = EXAMPLES / f"{name}.properties"
    before = load(path, environment={})
    aliases = [one.alias for one in before.clusters]
    out = converted(path, aliases, tmp_path)
    assert effective(load(out, environment={})) == effective(before)
    # a second conversion changes nothing
    assert canonical(read_raw(out).settings, aliases) == out.read_text()


@pytest.mark.parametrize("name", RESOURCES_SAY)
def test_a_resource_means_the_same_once_converted(name: str, tmp_path: Path) -> None:
    before = example(name, tmp_path)
    aliases = [one.alias for one in before.clusters]
    out = converted(RESOURCES / f"{name}.yaml", aliases, tmp_path, tmp_path / "secrets")
    assert effective(load(out, environment={})) == effective(before)
    assert "text of" not in out.read_text()


def test_old_names_become_todays_unless_both_are_set(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("A->B.topics.blacklist = a\ngroups.blacklist = b\nA->B.groups.exclude = c\n")
    assert canonical(read_raw(file).settings, ["A", "B"]) == (
        "groups.blacklist = b\n\nA->B.topics.exclude = a\nA->B.groups.exclude = c\n"
    )


KEYS = st.text(min_size=1).filter(lambda key: not key.endswith((*RENAMED, *DEFINITIONS)))
"""A strategy that generates unknown keys. Known keys are left out, because `convert` may write them
differently: under a new name, or with a pattern for a single star.
"""


@given(st.dictionaries(KEYS, st.text(), min_size=1, max_size=5))
def test_written_files_are_read_back(values: dict[str, str]) -> None:
    settings = {key: Setting(key=key, value=value, file="f") for key, value in values.items()}
    text = canonical(settings, ["A"])
    read = parse_properties(decode(text.encode("ascii"))).settings
    assert {key: setting.value for key, setting in read.items()} == values
