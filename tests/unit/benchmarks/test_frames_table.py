"""The table of `scripts/bench frames`."""

from __future__ import annotations

from benchmarks.frames_table import MICRO_BATCH, Step, frames_table


def steps(name: str, kafka: float, twinlog: float) -> list[Step]:
    return [
        Step(round=1, format=one, name=name, seconds=seconds, rows=1000, cpu_s=seconds)
        for one, seconds in (("kafka", kafka), ("twinlog", twinlog))
    ]


def line(text: str, step: str) -> list[str]:
    return next(one for one in text.splitlines() if one.startswith(step)).split()


def test_a_rate_is_met_from_once_as_much_on() -> None:
    assert line(frames_table(steps("count", 2, 1)), "count")[-4:] == ["1,000", "2.00x", "1x", "met"]
    assert line(frames_table(steps("count", 1, 2)), "count")[-2:] == ["1x", "missed"]
    assert line(frames_table(steps("count", 1, 1)[:1]), "count")[-3:] == ["-", "-", "1x"]


def test_a_micro_batch_is_the_median_of_all_rounds() -> None:
    found = [
        Step(round=1, format=one, name=MICRO_BATCH, seconds=1, times_ms=[{"triggerExecution": ms}])
        for one, times in (("kafka", (1, 100, 300)), ("twinlog", (131, 131)))
        for ms in times
    ]
    assert line(frames_table(found), MICRO_BATCH)[-5:] == ["100", "131", "1.31x", "1.3x", "missed"]


def test_steps_that_other_clients_disturbed_are_named() -> None:
    one = Step(round=2, format="kafka", name="count", seconds=1, rows=1, used_by_others=0.4)
    assert frames_table([one]).splitlines()[-1].endswith("2 kafka count 40%")
