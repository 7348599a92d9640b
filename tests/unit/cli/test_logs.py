"""The log of a mirror: where it is written, its format and its rotation."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from twinlog.cli.commands import mirror
from twinlog.cli.commands.mirror import LogFormat, configure_logs
from twinlog.cli.terminal.output import Loudness, set_loudness
from twinlog.errors import ConfigError, Disconnected, UsageError
from twinlog.flow_log import FlowLog
from twinlog.model import TopicPartition

log = logging.getLogger("twinlog.control.anything")
pytestmark = pytest.mark.usefixtures("logs_as_before")


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_events_go_to_the_file_and_warnings_to_stderr_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "twinlog.log"
    configure_logs(file, LogFormat.TEXT, verbose=False)
    log.info("A->B: began")
    log.warning("A->B: trouble [UNREACHABLE]")
    log.debug("too much")
    logging.getLogger("kafka.client").info("of the library")
    lines = file.read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "INFO A->B: began",
        "WARNING A->B: trouble [UNREACHABLE]",
    ]
    at = lines[0].partition(" ")[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at)
    assert abs(datetime.fromisoformat(at).timestamp() - time.time()) < 3600, "it is UTC"
    err = capsys.readouterr().err
    assert "trouble" in err
    assert "began" not in err


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [(Loudness.QUIET, ["trouble"]), (Loudness.NORMAL, ["trouble", "is over"])],
)
def test_quiet_leaves_out_good_news_of_every_thread(
    wanted: Loudness, printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def write() -> None:
        FlowLog(log, "A->B").warning("trouble")
        FlowLog(log, "A->B").news("is over")

    with click.Context(mirror.mirror) as context:
        set_loudness(context, wanted, ParameterSource.COMMANDLINE)
        configure_logs(None, LogFormat.TEXT, verbose=False)
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("A->B: ")[2] for line in lines] == printed


def test_json_has_one_object_a_line_with_flow_and_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "twinlog.log"
    configure_logs(file, LogFormat.JSON, verbose=False)
    error = Disconnected("B: the broker\nclosed the connection")
    FlowLog(log, "A->B").warning("trouble: %s; looking again", error)
    FlowLog(log, "s-1->t.2").info("stops", partition=TopicPartition("orders", 3))
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("no flow in it")
    log.warning("the file was not read: %s", ConfigError("mm2.properties: line 3 [A_B]"))
    log.warning("forged", extra={"level": "INFO", "message_": "x", "flow": "A->B"})
    first, second, third, last, other = (json.loads(line) for line in file.read_text().splitlines())
    assert (first["level"], first["flow"], first["code"]) == ("WARNING", "A->B", "DISCONNECTED")
    assert first["message"] == (
        "A->B: trouble: B: the broker\nclosed the connection [DISCONNECTED]; looking again"
    )
    assert first["logger"] == "twinlog.control.anything"
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}\+00:00", first["time"])
    assert (second["flow"], second["topic"], second["partition"]) == ("s-1->t.2", "orders", 3)
    assert "code" not in second
    assert "ValueError: broken" in third["traceback"]
    assert "flow" not in third
    assert set(other) == {"time", "level", "logger", "message", "flow"}
    assert other["level"] == "WARNING", "a field of ours is nobody else's to set"
    assert last["code"] == "CONFIG_INVALID", "that of the error, not what looks like one in a text"
    assert json.loads(capsys.readouterr().err.splitlines()[0]) == first


def test_the_file_is_rotated_and_five_old_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "FILE_BYTES", 1000)
    configure_logs(tmp_path / "twinlog.log", LogFormat.TEXT, verbose=False)
    for number in range(200):
        log.info("event %d %s", number, "." * 50)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["twinlog.log", *(f"twinlog.log.{n}" for n in range(1, 6))]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert "event 199" in (tmp_path / "twinlog.log").read_text()


@pytest.mark.parametrize(("before", "after"), [(None, 0o600), (0o640, 0o640), (0o600, 0o600)])
def test_the_file_belongs_to_this_user_only_unless_its_mode_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int | None, after: int
) -> None:
    monkeypatch.setattr(mirror, "FILE_BYTES", 1000)
    file = tmp_path / "twinlog.log"
    if before is not None:
        file.touch()
        file.chmod(before)
    mask = os.umask(0o022)
    try:
        configure_logs(file, LogFormat.TEXT, verbose=False)
        for number in range(100):
            log.info("event %d %s", number, "." * 50)
    finally:
        os.umask(mask)
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert len(found) > 3
    assert set(found.values()) == {after}


def test_a_file_that_cannot_be_written_is_reported_immediately(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--log-file: .*No such file"):
        configure_logs(tmp_path / "missing" / "twinlog.log", LogFormat.TEXT, verbose=False)
