"""Names and messages that other clients have set are neither interpreted by a terminal nor mistaken
for Twinlog's own lines.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.snapshots import flow, partition
from twinlog.cli.commands import check, diff, doctor, groups, offsets
from twinlog.cli.commands.check import error_parts
from twinlog.cli.commands.mirror import LogFormat, configure_logs
from twinlog.cli.main import run
from twinlog.cli.terminal import tables
from twinlog.cli.terminal.output import write_line
from twinlog.cli.terminal.progress import PlainProgress, mirror_view
from twinlog.client.group_translation import TranslatedGroup, TranslatedOffset
from twinlog.client.offset_reset import GroupReset, ResetOffset
from twinlog.cluster.groups.group_members import GroupSide
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.values.warnings import ConfigWarning, WarningCode
from twinlog.control.check.group_readiness import CommittedOffset, FlowGroups, GroupReadiness
from twinlog.control.check.report import CheckReport, ClusterReport, Problem
from twinlog.control.compare import Aspect, Deviation, FlowComparison
from twinlog.control.doctor.findings import ClusterView, Observation, findings
from twinlog.control.watch.events import EventLog, last_events
from twinlog.control.watch.rates import Rates
from twinlog.control.watch.service import ServiceNotifier
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.status_file import StatusFile
from twinlog.errors import ConfigError, FlowError
from twinlog.model import Flow
from twinlog.shown import shown, shown_in_json, shown_lines

EVIL = "evil\x1b]0;pwned\x07\x1b[2J\nINFO fake"
HARMLESS = r"evil\x1b]0;pwned\x07\x1b[2J\x0aINFO fake"
MARKUP = "[red]x[/red] [link=file:///etc/passwd]"
EVIL_WARNING = ConfigWarning(code=WarningCode.UNKNOWN_KEY, file="x", line=1, key=EVIL, message=EVIL)
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")

log = logging.getLogger("twinlog.control.anything")
pytestmark = pytest.mark.usefixtures("logs_as_before")


def assert_harmless(text: str) -> None:
    assert "evil" in text
    assert OBEYED.search(text) is None
    assert not [line for line in text.splitlines() if line.lstrip().startswith("INFO fake")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EVIL, HARMLESS),
        ("\x00\t\r\x7f\x85\x9b", r"\x00\x09\x0d\x7f\x85\x9b"),
        ("a\u202eb\u2066c\u200fd\u061c", r"a\u202eb\u2066c\u200fd\u061c"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\udc80", r"\udc80"),
        ("größe 日本 \U0001f600 \\x1b", "größe 日本 \U0001f600 \\x1b"),
    ],
)
def test_control_characters_are_escaped_and_nothing_else_is(text: str, expected: str) -> None:
    assert shown(text) == expected
    assert shown_lines(f"\t{text}\n").strip() in (expected, shown_lines(text))
    assert json.loads(shown_in_json(json.dumps(text, ensure_ascii=False))) == text


def test_a_line_for_people_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_line(f"group {EVIL}")
    assert capsys.readouterr().out == f"group {HARMLESS}\n"


def test_a_log_line_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "twinlog.log"
    configure_logs(file, LogFormat.TEXT, verbose=False)
    log.warning("group %s", EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("it failed")
    for text in (file.read_text(), capsys.readouterr().err):
        assert OBEYED.search(text) is None
        assert f"group {HARMLESS}\n" in text
        first, second, *trace = text.splitlines()
        assert first.endswith(HARMLESS)
        assert second.endswith("ERROR it failed")
        assert "Traceback" in trace[0]
        assert all(line.startswith("  ") for line in trace), "none looks like a line of the log"


def test_a_json_log_line_has_the_exact_message(tmp_path: Path) -> None:
    file = tmp_path / "twinlog.log"
    configure_logs(file, LogFormat.JSON, verbose=False)
    log.warning("%s", f"{EVIL}\x9b2J\u2028\udc80")
    (line,) = file.read_text().splitlines()
    assert OBEYED.search(line) is None
    assert json.loads(line)["message"] == f"{EVIL}\x9b2J\u2028\udc80"


def test_printed_events_are_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    kept = EventLog(tmp_path / "mm2.properties")
    kept.start()
    log.warning("group %s", EVIL)
    kept.stop()
    (process,) = last_events(tmp_path / "mm2.properties")
    assert process.events[0].message == f"group {HARMLESS}"


def evil_flow() -> FlowSnapshot:
    """Return a flow with hostile text in every field that other clients can set."""
    bad = partition(
        f"a{EVIL}", state="FAILED", code="X", message=f"no {EVIL}", target_topic=MARKUP, since_ms=1
    )
    good = partition(f"b{EVIL}{MARKUP}", target_topic=f"A.{EVIL}")
    alone = {EVIL: f"it is {EVIL} there"}
    return flow(bad, good, reason=EVIL, guarantee="exact", state="DEGRADED", skipped_groups=alone)


def test_status_shows_names_and_messages_as_they_are_and_obeys_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    StatusFile(tmp_path / "mm2.properties").write([evil_flow()])
    assert run(["status"]) == 1
    text = capsys.readouterr().out
    assert_harmless(text)
    assert text.count(HARMLESS) >= 7
    assert MARKUP in text, "no name is taken for markup"
    assert run(["status", "--format", "json"]) == 1
    (mirror,) = json.loads(capsys.readouterr().out)["mirrors"]
    assert list(mirror["flows"][0]["skipped_groups"]) == [EVIL], "programs get it exactly"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_tables_of_offsets_are_harmless(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    one = TranslatedOffset(
        topic=EVIL, partition=0, offset=1, to_topic=f"A.{EVIL}", to_offset=1, is_exact=True
    )
    offset = ResetOffset(topic=EVIL, partition=0, before=1, after=2, start=0, end=9)
    plan = [GroupReset(group=EVIL, offsets=(offset,), topic_ids={})]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    # without colors, all escape sequences would come from the data
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "400")
    # a dumb terminal has 80 columns unless both variables are set
    monkeypatch.setenv("LINES", "50")
    found = TranslatedGroup(offsets=(one,))
    tables.write_all(offsets._translated(found, Flow(EVIL, EVIL), reverse=False))
    tables.write_all(offsets._reset_parts("B: to the log end offsets", plan))
    text = capsys.readouterr().out
    assert_harmless(text)
    assert text.count(HARMLESS) >= 2


def test_output_of_check_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(code="CLUSTER", message=f"a broker says {EVIL}")
    cluster = ClusterReport(alias="A", addresses="a:1", problem=problem)
    report = CheckReport(file="mm2.properties", warnings=(), clusters=(cluster,), flows=())
    config = MirrorConfig(file="mm2.properties", clusters=(), flows=(), warnings=(EVIL_WARNING,))
    tables.write_all(check._report_parts(report, config))
    error = ConfigError(EVIL, file=EVIL, line=1, key=EVIL)
    error.more, error.warnings = (ConfigError(EVIL, file=EVIL, key=MARKUP),), (EVIL_WARNING,)
    tables.write_all(error_parts(error))
    text = capsys.readouterr().out
    assert_harmless(text)
    assert "[red]x[/red]" in text, "no key is taken for markup"


def test_output_of_diff_and_groups_is_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = FlowComparison(flow=f"{MARKUP}->{EVIL}")
    one = Deviation(aspect=Aspect.CONFIG, name=EVIL, detail=EVIL, source=EVIL, target=EVIL)
    found.add(Aspect.CONFIG, 1, [one, replace(one, left_alone=EVIL)])
    found.note(EVIL)
    tables.write_all(diff.parts(found, with_left_alone=True))
    committed = CommittedOffset(
        topic=EVIL, partition=0, offset=1, end=2, to_topic=EVIL, to_offset=1, why_not=EVIL
    )
    evil = GroupSide(state=EVIL, members=(), problem=EVIL)
    group = GroupReadiness(
        group=EVIL,
        is_share=False,
        source_side=evil,
        target_side=evil,
        committed=(committed,),
        why_not=(EVIL,),
    )
    tables.write_all(groups.parts(FlowGroups(flow=EVIL, groups=[group], notes=[EVIL])))
    side = ClusterView(alias=EVIL, problem=EVIL)
    seen = Observation(snapshot=evil_flow(), file=EVIL, source=side, target=side, notes=(EVIL,))
    tables.write_all(doctor.parts(seen, findings(seen)))
    text = capsys.readouterr().out
    assert_harmless(text)
    assert MARKUP in text, "no name is taken for markup"


def test_progress_is_harmless_on_a_terminal_and_in_a_log() -> None:
    stream = io.StringIO()
    plain = PlainProgress(lambda line: write_line(line, stream), once=False)
    plain.update([evil_flow()])
    assert_harmless(stream.getvalue())
    rates = Rates()
    console = Console(file=io.StringIO(), width=300)
    console.print(mirror_view([evil_flow()], rates.update(1.0, [evil_flow()]), 10, 300, 1))
    assert isinstance(console.file, io.StringIO)
    assert_harmless(console.file.getvalue())


@pytest.mark.parametrize("error", [FlowError(f"a {EVIL}"), ValueError(f"a {EVIL}")], ids=repr)
def test_an_error_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("twinlog.control.watch.status_file.running_mirrors", fail)
    assert run(["status"]) == 1
    text = capsys.readouterr().err
    assert text.splitlines()[0].startswith("twinlog: ")
    assert_harmless("\n".join(line for line in text.splitlines() if not line.startswith("  ")))
    assert OBEYED.search(text) is None


def test_the_service_manager_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []
    monkeypatch.setattr(
        "twinlog.control.watch.service._send", lambda _to, lines: sent.append(list(lines))
    )
    notifier = ServiceNotifier({"NOTIFY_SOCKET": "@x"}, os.getpid(), threading.Event())
    notifier.update([flow(flow=f"A->B\nMAINPID=1{EVIL}")])
    assert not any("\n" in line for lines in sent for line in lines)


def test_output_of_the_jvm_is_harmless() -> None:
    program = (
        "import io; from types import SimpleNamespace; from twinlog.spark.gateway import Gateway; "
        r"out = io.BytesIO(b'evil\x1b]0;pwned\x07\n\tat java.lang.X\n\xff\r\n'); "
        "gateway = Gateway.__new__(Gateway); gateway.last_warning = ''; "
        "gateway.process = SimpleNamespace(stderr=out); gateway._pass_on()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env=os.environ
    )
    assert done.stderr == b"evil\\x1b]0;pwned\\x07\n\tat java.lang.X\n\\xff\n"


def sources() -> Iterator[Path]:
    folder = Path(tables.__file__).parent
    yield from (path for path in folder.glob("*.py") if path.name not in ("tables.py", "output.py"))


@pytest.mark.parametrize(
    "maker", [r"\bText\(", r"\bText\.", r"\.add_row\(", r"\bprint_exc", r"logging\.Formatter\("]
)
def test_texts_and_rows_are_made_in_one_module(maker: str) -> None:
    guilty: Sequence[str] = [path.name for path in sources() if re.search(maker, path.read_text())]
    assert guilty == []
