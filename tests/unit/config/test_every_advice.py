"""For each piece of advice in the source about a configuration, a test follows it, and the file is
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.advice_cases import ENVIRONMENT, OF_PROPERTIES, SECRETS, File
from tests.support.advice_resources import OF_OTHERS
from tests.support.advice_sites import Site, advice_sites
from twinlog.config.advice.explanation import explain
from twinlog.config.files.mirror_maker_1 import PairOptions, read_pair
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load, load_all, load_raw
from twinlog.config.values.warnings import WarningCode
from twinlog.errors import ConfigError

CASES: Final = [*OF_PROPERTIES, *OF_OTHERS]

LEFT_OUT: Final = ("keys/", "pages/")
"""Folders with tables of keys and pages, whose texts are descriptions and not advice."""

FOLLOWED_ELSEWHERE: Final = {
    "no such file; name {}": "test_bad_input.py",
    "is a folder; name {}": "test_bad_input.py",
    "cannot be read: {}; check path and permissions": "test_bad_input.py",
    "; give the file of the {} too, because this one copies no topic": "test_connector.py",
    "whole names are matched: remove ^ and $": "test_linear_regex.py",
    "write PT30M, PT2H30M or P1D": "test_times.py",
    "--secrets: {}: a path with one of : { } $ cannot be written into a configuration; use another "
    "folder": "test_strimzi.py",
    "its YAML is nested too deeply; correct it": "test_strimzi.py",
    "write the whole character": "test_yaml_nodes.py",
    "remove the transforms, or exclude their topics and run the function in a stream of your own "
    "(docs/transforms.md)": "test_transforms.py",
    "let a RegexRouter keep the names instead of the policy, so that the topics belong to this "
    "flow (docs/transforms.md#topics-that-keep-their-names)": "test_transforms.py",
    "remove the line, and place the records in a second flow (docs/transforms.md#new-keys)": (
        "test_transforms.py"
    ),
}
"""Advice that is not about a line of a file, with the module that tests it."""

ALLOWED: Final = {
    WarningCode.NO_MEANING,
    WarningCode.READ_AS,
    WarningCode.CUSTOM_CODE,
    WarningCode.SECRET_IN_FILE,
}
"""Codes of warnings that a valid file may cause."""

Said = Callable[[File], tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """A function that returns the errors, and all other messages about a file. Each file is read
    only once.
    """
    return cache(lambda file: messages(file, tmp_path_factory.mktemp("advice")))


def messages(file: File, folder: Path) -> tuple[list[str], list[str]]:
    """Return the errors, and all other messages about a file."""
    secrets = folder / "secrets"
    for name, text in SECRETS.items():
        (secrets / name).parent.mkdir(parents=True, exist_ok=True)
        (secrets / name).write_text(text)
    path = folder / file.name
    content = file.text.encode() if isinstance(file.text, str) else file.text
    path.write_bytes(content.replace(b"FOLDER", str(folder).encode()))
    given = secrets if file.has_secrets else None
    try:
        config = loaded(path, file.second, given)
        for flow in config.flows:
            flow.topics.matches("orders")
    except ConfigError as error:
        return [*map(str, error.each)], [*map(str, error.warnings)]
    said = [str(one) for one in config.warnings if one.code not in ALLOWED]
    allowed = [str(one) for one in config.warnings if one.code in ALLOWED]
    return [], [
        *said,
        *allowed,
        *(one for flow in config.flows for one in explain(flow).differences),
    ]


def loaded(path: Path, second: str, secrets: Path | None) -> MirrorConfig:
    if not second:
        return load(path, environment=ENVIRONMENT, secrets=secrets)
    other = path.with_name("producer.properties")
    other.write_text(second)
    if path.name == "consumer.properties":
        raw = read_pair(path, other, PairOptions(include=".*"))
        return load_raw(raw, environment=ENVIRONMENT)
    return load_all([path, other], environment=ENVIRONMENT)


@pytest.mark.parametrize(
    ("says", "before", "after"), CASES, ids=[f"{n}" for n in range(len(CASES))]
)
def test_advice_is_followed(says: str, before: File, after: File, said: Said) -> None:
    errors, others = said(before)
    assert any(says in one for one in [*errors, *others]), [*errors, *others]
    errors, others = said(after)
    assert errors == []
    assert [one for one in others if says in one] == []
    codes = {f"[{code}]" for code in WarningCode if code not in ALLOWED}
    assert [one for one in others if any(one.endswith(code) for code in codes)] == []


def test_each_piece_of_advice_has_a_case(said: Said) -> None:
    given = [
        one for says, before, _ in CASES for some in said(before) for one in some if says in one
    ]

    def is_followed(site: Site) -> bool:
        return site.text in FOLLOWED_ELSEWHERE or any(map(site.pattern.match, given))

    sites = advice_sites("config", without=LEFT_OUT)
    assert [str(site) for site in sites if not is_followed(site)] == []
