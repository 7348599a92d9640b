"""The command line of the benchmark, its configuration files and its payload."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

import cramjam
import pytest

from benchmarks import frames_run, verify_run
from benchmarks.launches import TUNED, FlowFile
from benchmarks.payload import KEY_BYTES, VALUE_BYTES, make_key, make_values
from benchmarks.run import parse
from benchmarks.steady import summarize


def test_all_cases_are_the_default() -> None:
    assert parse([]).cases == []
    assert parse(["latency", "backlog", "--quick"]).cases == ["latency", "backlog"]


@pytest.mark.parametrize(
    "arguments",
    [["backlogs"], ["--rounds", "0"], ["--only", "spark"], ["--only", "mm2", "--baseline", "HEAD"]],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert "scripts/bench: error: " in capsys.readouterr().err


@pytest.mark.parametrize("case", [frames_run.parse, verify_run.parse])
def test_a_number_that_is_given_counts_in_a_quick_run_too(
    case: Callable[[Sequence[str]], Namespace],
) -> None:
    assert case(["--quick"]).records == 20_000
    assert case(["--quick", "--records", "5_000"]).records == 5_000
    assert case([]).records >= 1_000_000


def test_help_shows_cases_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "scripts/bench --quick" in text
    assert "unprotected" in text


def test_producer_keys_are_written_where_they_reach_the_data_producer() -> None:
    flow = FlowFile(alias="A7", source="s:1", target="t:1", topic="orders", tasks=4)
    lines = flow.text(TUNED).splitlines()
    assert "B.producer.linger.ms = 20" in lines
    assert "A7->B.topics = orders" in lines
    assert flow.remote_topic == "A7.orders"


def test_values_are_the_same_in_every_run_and_differ_from_each_other() -> None:
    values = make_values(500, seed=1)
    assert values == make_values(500, seed=1)
    assert len(set(values)) == 500
    assert {len(value) for value in values} == {VALUE_BYTES}
    assert {len(make_key(number)) for number in (0, 10**11)} == {KEY_BYTES}


def test_a_batch_of_values_packs_about_two_to_one() -> None:
    batch = b"".join(make_values(64, seed=2))
    packed = len(bytes(cramjam.lz4.compress(batch)))
    assert 1.8 < len(batch) / packed < 2.3


def test_latency_of_nothing_is_an_error() -> None:
    assert summarize([3.0, 1.0, 2.0], 4).p50 == 2.0
    with pytest.raises(RuntimeError, match="no record"):
        summarize([], 4)
