"""Commands and files with `twinlog.transforms`, before any cluster or Spark is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlog.cli.main import run
from twinlog.transforms.trial import TriedRecord

MASK = (
    "A->B.twinlog.transforms = mask",
    "A->B.twinlog.transforms.mask.topics = orders, pay.*",
    "A->B.twinlog.transforms.mask.function = company.privacy:mask_cards",
)
REFUSED = (
    "a mirror transforms only topics to which no other client writes, but the replication policy "
    "of this flow keeps the names of topics, so applications may write to the remote topics; let "
    "a RegexRouter keep the names instead of the policy, so that the topics belong to this flow "
    "(docs/transforms.md#topics-that-keep-their-names)"
)
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    lines = ("clusters = A, B", "A.bootstrap.servers = localhost:1", "B.bootstrap.servers = b:1")
    path.write_text("\n".join([*lines, "A->B.enabled = true", *MASK]) + "\n")
    return path


@pytest.mark.usefixtures("logs_as_before")
@pytest.mark.parametrize("more", [(), ("--once",)])
def test_a_mirror_refuses_to_start(
    file: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with file.open("a") as lines:
        lines.write(f"replication.policy.class = {IDENTITY}\n")
    assert run(["mirror", str(file), "--format", "json", *more]) == 2
    found = capsys.readouterr()
    (error,) = json.loads(found.out)["errors"]
    assert (error["code"], error["line"]) == ("TRANSFORMS_NOT_RUN", 5)
    assert error["key"] == "A->B.twinlog.transforms"
    assert error["message"] == REFUSED
    assert len(found.err.splitlines()) == 1, "no page was served, and nothing was started"


@pytest.mark.usefixtures("logs_as_before")
def test_a_flag_is_a_line_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mirror", str(file), "--transforms", "", "--listen", "off"]) == 2
    assert "twinlog.transforms does not list mask" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--topic", "clicks"),
            "--topic: no transform is for clicks; the topics are mask: orders, pay.*",
        ),
        (("--topic", "orders", "--limit", "0"), "'--limit': 0 is not in the range 1<=x<=100"),
    ],
)
def test_a_trial_that_cannot_begin(
    file: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["transform", "try", str(file), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_trial_of_a_cluster_that_cannot_be_reached(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster is unreachable, because no process listens at port 1. The trial fails before
    Spark is started.
    """
    assert run(["transform", "try", str(file), "--topic", "orders", "--format", "json"]) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "UNREACHABLE"
    assert error["message"].startswith("A (localhost:1): ")
    assert "check A.bootstrap.servers (" in error["message"]


def test_a_trial_without_transforms(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = file.read_text()
    file.write_text("\n".join(one for one in text.splitlines() if "transforms" not in one))
    assert run(["transform", "try", str(file), "--topic", "orders"]) == 2
    assert "A->B has no transforms: set twinlog.transforms in FILE [USAGE]" in (
        capsys.readouterr().err
    )


def test_a_check_that_only_explains_imports_nothing(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(file), "--explain"]) == 0
    assert "company.privacy:mask_cards" in capsys.readouterr().out


def test_a_trial_shows_each_change_with_the_value_before(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(value: object, **more: object) -> dict[str, object]:
        row = {"key": "k", "value": value, "headers": [], "topic": "orders", "timestamp": "noon"}
        return {**row, **more}

    card, mask = '{"card":"4111"}', '{"card":"****"}'
    records = [
        TriedRecord(
            partition=0,
            offset=7,
            before=shown(card),
            after=(shown(mask, headers=[["masked", "yes"]]),),
        ),
        TriedRecord(partition=0, offset=8, before=shown(None), after=(shown(None),)),
        TriedRecord(partition=1, offset=3, before=shown("x"), after=()),
        TriedRecord(
            partition=1, offset=4, before=shown("\x1b[1m"), after=(), error="TypeError: no"
        ),
    ]
    monkeypatch.setattr("twinlog.transforms.trial.try_flow", lambda *_: records)
    assert run(["transform", "try", str(file), "--topic", "orders"]) == 1
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head == (
        "orders on A, through mask: 4 records: 1 changed, 1 failed, 1 filtered, 1 unchanged; "
        "a mirror stops at a failed record"
    )
    assert names.split() == ["record", "before", "after"]
    assert [one.split() for one in rows] == [
        ["orders-0:7", "value", card, mask],
        ["headers", "[]", "[['masked',", "'yes']]"],
        ["orders-0:8", "unchanged", "NULL"],
        ["orders-1:3", "filtered", "x"],
        ["orders-1:4", "failed", "\\x1b[1m", "TypeError:", "no"],
    ]
    assert run(["-q", "transform", "try", str(file), "--topic", "orders"]) == 1
    assert capsys.readouterr().out == "orders-1 offset 4: TypeError: no\n"
