"""Groups that are left alone are reported with the reason, as in `twinlog status`."""

from __future__ import annotations

from twinlog.control.watch.latency import GroupsReport


def test_a_group_may_be_left_unchanged_for_two_reasons() -> None:
    report = GroupsReport(
        skipped={"both": "in use on the target", "one": "further on the target"},
        untranslated={"both": "records of t are placed by key", "other": "records of t are"},
    )
    assert report.left_alone == {
        "both": "in use on the target; records of t are placed by key",
        "one": "further on the target",
        "other": "records of t are",
    }
