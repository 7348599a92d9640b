"""With `twinlog verify --master`, Spark's tasks compare sections of real logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import ENTRY
from tests.support.terminal import Terminal
from tests.support.verified import COUNT, ByHand, bar_shares, verify
from twinlog.mirror.map.offset_map import Run
from twinlog.sandbox import LocalCluster
from twinlog.survey import verify as survey_verify

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


@pytest.mark.witness("verify as a Spark job gives the same result as in one process")
def test_tasks_of_spark_find_the_same(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_hand = ByHand(source_cluster, target_cluster, tmp_path)
    # so that five tasks compare each partition
    monkeypatch.setattr(survey_verify, "LEAST_OFFSETS", 8)
    records = by_hand.records()
    by_hand.put("clean", records)
    by_hand.put("flipped", [*records[:17], records[17]._replace(value=b"x"), *records[18:]])
    by_hand.put("lost", records[:-1])
    by_hand.put("twice", records[:12] + records[11:])
    by_hand.put("row", records, (Run(0, 0, 0), Run(30, 31, 30)))
    code, alone = verify(capsys, by_hand.file, "--deep")
    by_tasks, found = verify(capsys, by_hand.file, "--deep", "--master", "local[2]")
    for one in (*alone["partitions"], *found["partitions"]):
        del one["bytes"]  # both tasks read a batch that spans two sections, so it counts twice
    assert (by_tasks, found) == (code, alone)
    assert code == 1

    # the progress bar shows the progress of the job, even if sections take less than a moment
    report = tmp_path / "report"
    into = ["sh", "-c", f'exec "$0" "$@" > {report}', *ENTRY]
    words = ("--master", "local[2]", "--format", "json", "--topics", f"{by_hand.mark}-(clean|lost)")
    with Terminal(100, "verify", str(by_hand.file), *words, command=into) as shown:
        assert shown.wait() == 1, shown.text
        shares = bar_shares(shown.written)
        assert (shares, shares[-1]) == (sorted(shares), 100)
        assert f"100 %, {2 * COUNT - 1} of {2 * COUNT - 1} offsets" in shown.written
        assert "%" not in shown.text
    assert json.loads(report.read_text())["answer"] == "different"
    by_hand.close()
