"""A group name may contain any characters. It is escaped in output for people, and exact in
JSON.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, consumer, eventually, produce
from tests.support.groups import Pair, commit
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.cli.commands.mirror import LogFormat, configure_logs
from twinlog.cli.main import run
from twinlog.cli.terminal.output import configure_logging
from twinlog.control.watch.events import EventLog, last_events
from twinlog.control.watch.status_file import StatusFile
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

EVIL = "evil\x1b]0;pwned\x07\x1b[2J\u202e"
HARMLESS = r"evil\x1b]0;pwned\x07\x1b[2J\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Set up logging as `twinlog mirror --log-file` does, with a folder for status and events.
    Return the log file.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    root, ours = logging.getLogger(), logging.getLogger("twinlog")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    configure_logging(verbose=False)
    file = tmp_path / "mirror.log"
    configure_logs(file, LogFormat.TEXT, verbose=False)
    yield file
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


@pytest.mark.witness("escape sequences in names do not reach the terminal")
def test_a_group_with_escape_sequences_reaches_no_terminal_and_no_log_as_such(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, [Outgoing(value=b"%d" % n) for n in range(10)])
    with Mirror(pair.config, once=True) as mirror:
        mirror.wait()  # so that the target has the topic
    group = f"{pair.group}-{EVIL}"
    commit(pair.a, group, pair.topic, 4)
    # an active member, so the sync leaves the group alone and reports it
    member = consumer(pair.b, config={"group.id": group})
    member.subscribe([pair.remote])
    events, status = EventLog(pair.config), StatusFile(pair.config)
    events.start()
    try:
        eventually(lambda: bool(member.poll(0.1)) or bool(member.assignment()))
        with Mirror(pair.config, on_snapshot=status.write) as mirror:
            eventually(lambda: any(group in f.skipped_groups for f in mirror.snapshots))
            eventually(lambda: HARMLESS in logs.read_text())
            status.write(mirror.snapshots)
            mirror.stop()
        capsys.readouterr()

        assert run(["status", str(pair.config)]) == 0
        text = capsys.readouterr().out
        assert HARMLESS in text
        assert OBEYED.search(text) is None
        assert run(["status", str(pair.config), "--format", "json"]) == 0
        (shown,) = json.loads(capsys.readouterr().out)["mirrors"]
        assert group in shown["flows"][0]["skipped_groups"], "programs get it exactly"
    finally:
        member.close()
        events.stop()
        status.remove()
    assert OBEYED.search(logs.read_text()) is None
    (process,) = last_events(pair.config)
    told = [event.message for event in process.events]
    assert any(HARMLESS in message for message in told)
    assert not any(OBEYED.search(message) for message in told)

    assert run(["offsets", "translate", str(pair.config), "--group", group]) == 0
    assert OBEYED.search(capsys.readouterr().out) is None
    other = f"{group}\nINFO fake"
    assert run(["offsets", "translate", str(pair.config), "--group", other]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert HARMLESS in line
    assert r"\x0aINFO fake" in line
