"""`twinlog drill` on brokers. It passes for a correct copy, fails for each wrong record, and
removes everything that it has created.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.mirror import EmittingMirror
from tests.support.settings import settings_of
from tests.support.topics import create_topic, topic_names
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.membership import MemberRole, Membership
from twinlog.control.drill import drill
from twinlog.control.drill.cleaning import PREFIX, leftovers
from twinlog.control.drill.rehearsal import DrillWriter
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

# one after the other, because `clean` removes what any drill has left
pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("commands")]


PASSWORD = "of-the-key-of-a-drill"


class Case:
    """A flow of three topics."""

    def __init__(
        self, source: LocalCluster, target: LocalCluster, topic: str, folder: Path
    ) -> None:
        self.source, self.target, self.topic = source, target, topic
        self.file = folder / "mm2.properties"
        self.temporary = folder / "temporary"
        """Temporary folder for the files of drills."""
        self.alias = f"A{topic[-8:]}"
        """A unique alias: the state topic of a shared target contains the source of each flow."""
        self.file.write_text(
            f"clusters = {self.alias}, B\n{self.alias}.bootstrap.servers = {source.bootstrap}\n"
            f"B.bootstrap.servers = {target.bootstrap}\n{self.alias}->B.enabled = true\n"
            f"topics = {topic}-.*\nreplication.factor = 1\n"
            "emit.checkpoints.interval.seconds = 1\nlisteners = http://127.0.0.1:1\n"
        )
        for number in range(3):
            create_topic(source, f"{topic}-{number}")

    def left(self) -> list[str]:
        """Return the lines of `drill clean` about remains of earlier drills."""
        lines = []
        for cluster in (self.source, self.target):
            with ClusterClient(settings_of(cluster)) as client:
                lines += list(leftovers(client).lines())
        return lines


@pytest.fixture
def case(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Case:
    return Case(source_cluster, target_cluster, fresh_topic, tmp_path)


def drilled(
    case: Case, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any]]:
    """Run a drill, and return its exit code and its JSON output."""
    capsys.readouterr()
    code = run(["drill", "run", str(case.file), "--yes", "--format", "json", *words])
    said = capsys.readouterr()
    assert said.out, said.err
    return code, json.loads(said.out)


@pytest.mark.spark
def test_both_rehearsals_are_green_and_leave_a_signed_report(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Ed25519PrivateKey.generate()
    pem, reports = tmp_path / "key.pem", tmp_path / "reports"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    words = ("--seconds", "1", "--rate", "300", "--report", str(reports), "--sign", str(pem))
    code, found = drilled(case, capsys, *words)
    assert code == 0, found
    switched, failed = found["result"]["rehearsals"]
    assert (switched["part"], failed["part"]) == ("switchover", "failover")
    assert switched["lost_records"] == switched["records_read_again"] == 0
    assert min(one["written_records"] for one in (switched, failed)) > 100
    assert found["result"]["verdict"] == "green"
    written = {path.suffix: path for path in reports.iterdir()}
    sums = written[".sha256"].read_text()
    for path in (written[".json"], written[".html"]):
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" in sums
    key.public_key().verify(written[".sig"].read_bytes(), sums.encode())
    assert json.loads(written[".json"].read_text())["id"].startswith(PREFIX)
    assert "<span class=green>green</span>" in written[".html"].read_text()
    assert case.left() == []


class InProcess(EmittingMirror):
    """A mirror without Spark, used instead of the drill's own mirror process."""

    def __init__(self, config: Path, *_words: str, pass_fds: Collection[int]) -> None:
        del pass_fds
        super().__init__(config)
        self.start()

    def check(self) -> None:
        """Do nothing: a mirror in this process cannot have ended with an exit code."""

    def kill(self) -> None:
        self.__exit__(None, None, None)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "MirrorProcess", InProcess)


@pytest.mark.usefixtures("quick")
def test_a_lost_a_duplicated_and_a_reordered_record_turn_it_red(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One topic lacks a record, one has a duplicate, and one has two records in the wrong order.
    Each differs from the list of acknowledged records, so the drill fails and names all three.
    """
    changes = {
        0: lambda numbers: [n for n in numbers if n != 3],
        1: lambda numbers: [m for n in numbers for m in ([n, n] if n == 3 else [n])],
        2: lambda numbers: [{3: 4, 4: 3}.get(n, n) for n in numbers],
    }

    def batch(self: DrillWriter, tp: TopicPartition) -> bytes:
        first = self.next_numbers[tp]
        numbers = list(range(first, first + self._at_once))
        which = int(tp.topic.removesuffix(".internal")[-1])
        records = [
            Record(offset=at, timestamp=0, key=b"%d" % number, value=b"")
            for at, number in enumerate(changes[which](numbers))
        ]
        return bytes(encode_batch(records, codec=Codec.NONE))

    monkeypatch.setattr(DrillWriter, "_batch", batch)
    words = ("--part", "switchover", "--seconds", "1", "--rate", "600")
    code, found = drilled(case, capsys, *words)
    assert code == 1
    assert found["result"]["verdict"] == "red"
    (rehearsal,) = found["result"]["rehearsals"]
    said = {(one["where"][-12:-2], one["what"]) for one in rehearsal["findings"]}
    wanted = ["1 record lost: 3", "1 record doubled: 3", "1 record moved: 3"]
    assert said == {(f"{number}.internal", what) for number, what in enumerate(wanted)}
    assert case.left() == []


@pytest.fixture
def killed(case: Case) -> Iterator[Case]:
    """A flow whose drill was killed with SIGKILL after it had created its topics."""
    command = "import sys; from twinlog.cli.main import run; sys.exit(run(sys.argv[1:]))"
    with case.file.open("a") as file:
        file.write(f"{case.alias}.ssl.key.password = {PASSWORD}\n")
    case.temporary.mkdir()
    words = ["drill", "run", str(case.file), "--yes", "--format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *words],
        env=os.environ | {"TMPDIR": str(case.temporary)},
    )
    try:
        eventually(lambda: any(PREFIX in name for name in topic_names(case.source)))
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    yield case


@pytest.mark.witness("topics and groups of a killed drill are removed")
def test_remains_of_a_killed_drill_are_shown_and_removed(
    killed: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(killed.file)
    files = [path for path in killed.temporary.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert list(killed.temporary.glob(f"{PREFIX}*")) == []
    assert run(["drill", "clean", file, "--dry-run"]) == 0
    assert "of drills: twinlog-drill-" in capsys.readouterr().out
    assert killed.left() != []
    of_another = Membership(settings_of(killed.source), f"{PREFIX}89abcdefs-0")
    of_another.start()
    try:
        assert of_another.wait_for(lambda it: it.role is MemberRole.LEADING, within_s=PATIENCE_S)
        assert run(["drill", "clean", file, "--yes"]) == 1
        assert f"a drill is running: {PREFIX}89abcdef" in capsys.readouterr().out
    finally:
        of_another.leave()
    assert any("topic" in line for line in killed.left())
    later = f"{PREFIX}76543210s-0.internal"

    def confirm(*_: object) -> bool:
        create_topic(killed.source, later)  # another operator begins a drill
        return True

    monkeypatch.setattr("twinlog.cli.commands.drill.is_confirmed", confirm)
    monkeypatch.setattr("twinlog.cli.commands.drill.require_an_answer", lambda **_: None)
    eventually(lambda: run(["drill", "clean", file]) == 0)
    assert "everything is removed" in capsys.readouterr().out
    assert {name for name in topic_names(killed.source) if PREFIX in name} == {later}
    assert run(["drill", "clean", file, "--yes"]) == 0
    assert killed.left() == []
    assert {f"{killed.topic}-{number}" for number in range(3)} <= topic_names(killed.source)


def test_bad_input_is_one_line(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(case.file)
    assert run(["drill", "run", file, "--dry-run"]) == 0
    assert "a topic like" in capsys.readouterr().out
    assert run(["drill", "run", file, "--dry-run", "--topics", "nothing"]) == 1
    assert "[NOTHING_TO_DRILL]" in capsys.readouterr().err
    assert run(["drill", "run", file, "--yes", "--sign", str(tmp_path / "no.pem")]) == 2
    assert "--sign is only used with --report" in capsys.readouterr().err
    words = ["--report", str(tmp_path), "--sign", file]
    assert run(["drill", "run", file, "--yes", *words]) == 2
    assert "not a private key in PEM" in capsys.readouterr().err
    assert case.left() == []
