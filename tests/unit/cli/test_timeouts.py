"""If clusters do not respond, commands that query them end in time with a message."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stopwatch import Stopwatch
from twinlog.cli.main import run
from twinlog.sandbox.layout import free_ports

SOON_S = 10.0
"""Time limit in seconds, far below the minute after which a silent cluster is given up."""


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    """A configuration of two flows between clusters at whose addresses no process listens."""
    one, two, three = free_ports(3)
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = prod, dr\nprod->dr.enabled = true\ndr->prod.enabled = true\n"
        f"prod.bootstrap.servers = 127.0.0.1:{one}, 127.0.0.1:{three}\n"
        f"dr.bootstrap.servers = 127.0.0.1:{two}\n"
    )
    return path


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A configuration of clusters whose hosts accept connections but never respond."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        ports = [each.getsockname()[1] for each in (one, two)]
        path = tmp_path / "mm2.properties"
        path.write_text(
            "clusters = prod, dr\nprod->dr.enabled = true\ndr->prod.enabled = true\n"
            f"prod.bootstrap.servers = 127.0.0.1:{ports[0]}\n"
            f"dr.bootstrap.servers = 127.0.0.1:{ports[1]}\n"
        )
        yield path


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("check", 1)])
def test_refused_connections_are_known_at_once(
    nobody: Path, capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    with Stopwatch() as watch:
        assert run([command, str(nobody)]) == code
    assert watch.seconds < SOON_S
    text = capsys.readouterr().out
    (line,) = {one for one in text.splitlines() if "prod (" in one}
    assert line.count("connection refused") == 1, "one reason for both addresses"
    assert line.count("127.0.0.1") == 2
    assert line.endswith(
        f"; check prod.bootstrap.servers ({nobody}:4) and the network: "
        "probably no broker runs there, or its listener has another port [UNREACHABLE]"
    )
    assert "no topic to mirror" not in text


ASKING = (
    "failover plan FILE",
    "failover run FILE --yes",
    "failover abort FILE",
    "switchover plan FILE",
    "switchover run FILE --yes",
    "failback plan FILE",
    "flow promote FILE --yes",
    "flow pause FILE",
    "topic release FILE --topics orders",
    "drill clean FILE --yes",
    "groups ready FILE",
    "offsets reset FILE --cluster dr --group g --topic orders --to-earliest --dry-run",
    "offsets rebuild FILE --dry-run",
    "diff FILE",
    "verify FILE",
    "export FILE --side source --topic orders --partition 0 --output OUTPUT",
    "topology FILE --cluster dr",
)


@pytest.mark.parametrize("line", ASKING)
def test_a_command_that_needs_a_cluster_says_at_once_that_it_refuses_connections(
    tmp_path: Path, nobody: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    paths = {"FILE": str(nobody), "OUTPUT": str(tmp_path / "lines.json")}
    words = [paths.get(word, word) for word in line.split()]
    if words[0] in ("failover", "switchover", "failback", "drill", "export", "offsets"):
        words += [] if "reset" in words else ["--flow", "prod->dr"]
    with Stopwatch() as watch:
        assert run(words) > 0
    assert watch.seconds < SOON_S
    assert "): connection refused; check " in capsys.readouterr().err


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("check", 1), ("doctor", 1)])
def test_unresolvable_names_are_reported_immediately(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    code: int,
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = prod, dr\nprod->dr.enabled = true\nprod.bootstrap.servers = p.invalid:9092\n"
        "dr.bootstrap.servers = d.invalid:9092\n"
    )
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with Stopwatch() as watch:
        assert run([command, str(path)]) == code
    assert watch.seconds < SOON_S
    text = " ".join(capsys.readouterr().out.split())
    assert "dr (d.invalid:9092): the name cannot be resolved: name or service not known" in text
    assert "at its end" not in text


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("check", 1)])
def test_silent_clusters_are_waited_for_for_the_documented_time(
    frozen: Path, capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    with Stopwatch() as watch:
        assert run([command, str(frozen), "--timeout", "0.5", "--format", "json"]) == code
    assert watch.seconds < SOON_S
    answer = json.loads(capsys.readouterr().out)
    said = " ".join(one["message"] for one in answer["errors"])
    assert ("prod (" in said, "dr (" in said) == (True, True)
