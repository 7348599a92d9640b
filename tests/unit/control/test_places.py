"""Offsets of the source as offsets of the target, where records lie before ours."""

from __future__ import annotations

import pytest

from twinlog.control.places import Place
from twinlog.mirror.offset_map import Run
from twinlog.mirror.translation import Reach, Translation
from twinlog.model import TopicPartition

ADOPTED_AT = Run(0, 100, 500)


def place(*, log_start: int) -> Place:
    return Place(
        target=TopicPartition("A.orders", 0),
        log_start=log_start,
        log_end=510,
        runs=(ADOPTED_AT,),
        reach=Reach(110, 510),
        is_way_back=False,
    )


@pytest.mark.parametrize("offset", [0, 50, 99])
def test_what_mirror_maker_2_copied_before_us_is_not_skipped(offset: int) -> None:
    assert place(log_start=40).translate(offset) == Translation(offset=40, is_exact=False)


@pytest.mark.parametrize(("offset", "there"), [(100, 500), (105, 505), (110, 510)])
def test_what_we_copied_is_exact(offset: int, there: int) -> None:
    assert place(log_start=40).translate(offset) == Translation(offset=there, is_exact=True)


def test_without_records_before_ours_there_is_nothing_to_skip() -> None:
    assert place(log_start=500).translate(50) == Translation(offset=500, is_exact=True)
