"""A YAML file that expands to far more than it contains is refused within seconds, with its
line.
"""

from __future__ import annotations

import json
import time

import pytest

from twinlog.config.strimzi.yaml_nodes import DEEPEST, MOST_CHARACTERS, parse_yaml
from twinlog.errors import ConfigError

SOON_S = 20.0
"""Time limit in seconds of CPU. Without a limit of nodes, these files take minutes."""


def refusal(text: str) -> str:
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        for node in parse_yaml(text, file="m.yaml"):
            for value in node.fields().values():
                value.text()
    assert time.process_time() - began < SOON_S
    return caught.value.message


def test_merges_that_double_at_each_level_are_resolved() -> None:
    levels = "".join(f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    began = time.process_time()
    (document,) = parse_yaml("a0: &a0 {x: 1, y: 2}\n" + levels, file="m.yaml")
    last = document.fields()["a39"].fields()
    assert {name: node.text() for name, node in last.items()} == {"x": "1", "y": "2"}
    assert time.process_time() - began < SOON_S


def test_the_first_merged_mapping_wins_and_own_fields_win_over_all() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {x: 3, z: 4}\nc:\n  <<: [*a, *b]\n  y: 5\n"
    (document,) = parse_yaml(text, file="m.yaml")
    merged = document.fields()["c"].fields()
    assert {name: node.text() for name, node in merged.items()} == {"x": "1", "y": "5", "z": "4"}


def test_fields_that_are_merged_again_and_again_have_a_limit() -> None:
    fields = ", ".join(f"k{n}: 1" for n in range(300))
    again = "".join(f"b{n}:\n  <<: *a\n" for n in range(300))
    message = refusal(f"a: &a {{{fields}}}\n{again}")
    assert message.startswith("m.yaml:")
    assert "fields are merged by <<" in message


def test_a_mapping_that_merges_itself() -> None:
    assert refusal("v: &a\n  <<: *a\n").startswith(
        "m.yaml:2: merges itself or a value that is not a mapping"
    )


@pytest.mark.parametrize("depth", [DEEPEST + 1, 5000])
def test_nesting_has_a_limit(depth: int) -> None:
    message = refusal(f"v: {'[' * depth}{']' * depth}")
    assert message == "m.yaml:1: invalid YAML: it is nested too deeply; correct it"


@pytest.mark.parametrize("number", ["0x" + "f" * 4300, "!!int 0xzz", "!!int abc", "!!int 0b2"])
def test_a_number_that_is_none_has_its_line(number: str) -> None:
    assert refusal(f"u: 1\nv: {number}\n") == (
        "m.yaml:2: v: is not a whole number; correct it, or quote it"
    )


def test_a_file_that_is_too_long() -> None:
    assert "characters" in refusal("# " + "x" * MOST_CHARACTERS)


def test_escapes_of_json_above_ffff_are_one_character() -> None:
    (document,) = parse_yaml(json.dumps({"\U0001f600": "p\U0001f600\ufeff"}), file="m.json")
    ((name, node),) = document.fields().items()
    assert (name, node.text()) == ("\U0001f600", "p\U0001f600\ufeff")


def test_half_of_a_surrogate_pair_is_refused() -> None:
    message = refusal('{\n"a": "x\\ud83d"}')
    assert message.startswith(
        "m.yaml:2: a: has half of a surrogate pair; write the whole character"
    )
