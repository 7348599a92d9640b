"""A mirror's log contains no secret of the configuration, and so do its events."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.support.monitor import LOCAL, ask
from tests.support.snapshots import flow
from twinlog.cli.commands.mirror import LogFormat, configure_logs
from twinlog.cli.terminal import monitoring
from twinlog.config.load import load
from twinlog.control.watch.events import last_events
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.server import WebServer
from twinlog.flow_log import FlowLog
from twinlog.shown import without_secrets

PASSWORD: Final = "only-we-know"
JAAS: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
FILE: Final = (
    "clusters = A, B\nA.bootstrap.servers = ${env:TWINLOG_ADDRESS}\n"
    "B.bootstrap.servers = 127.0.0.1:2\nA->B.enabled = true\ntopics = .*\n"
    "config.providers = env\n"
    "config.providers.env.class = "
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    "A.security.protocol = SASL_SSL\nA.sasl.mechanism = PLAIN\n"
    f'A.sasl.jaas.config = {JAAS} required username="twin" password="PASSWORD";\n'
)


def config_of(file: Path, password: str = PASSWORD) -> CurrentConfig:
    file.write_text(FILE.replace("PASSWORD", password))
    return CurrentConfig(load(file, environment={"TWINLOG_ADDRESS": "east-1.example.org:9092"}))


def fail(what: str) -> None:
    """Log an error that contains the argument `what`, as a bug might."""
    try:
        raise ValueError(f"{what} is of no use")
    except ValueError:
        FlowLog(logging.getLogger("twinlog.careless"), "A->B").bug("east-1: refused %s", what)


@pytest.mark.usefixtures("logs_as_before")
@pytest.mark.parametrize("log_format", LogFormat)
def test_no_secret_is_in_log_events_rest_and_published_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    log_format: LogFormat,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file, log = tmp_path / "mm2.properties", tmp_path / "twinlog.log"
    current, served = config_of(file), list[WebServer]()
    configure_logs(log, log_format, verbose=False)
    with monitoring.watched(file, LOCAL, Event(), served.append, current=current) as watch:
        fail(PASSWORD)
        FlowLog(logging.getLogger("twinlog.careless"), "A->B").news("paused", person=PASSWORD)
        watch.update([flow(state="DEGRADED", reason=f"A: east-1.example.org echoes {PASSWORD}")])
        published = watch.events("A->B")
        answer = ask(served[0].address, "/api/v1/events", timeout_s=60).body.decode()
    (process,) = last_events(file)
    texts = {
        "events": repr(process.events),
        "the state topic": json.dumps([*map(bytes.decode, published.encode())]),
        "REST": answer,
        "the log": log.read_text(),
        "stderr": capsys.readouterr().err,
    }
    assert [name for name, text in texts.items() if PASSWORD in text] == []
    # texts that are not secret are not hidden, even if a config provider returned them
    assert [name for name, text in texts.items() if "refused <hidden>" not in text] == []
    assert "east-1.example.org" in texts["events"]
    assert "ValueError: <hidden> is of no use" in texts["the log"]
    assert without_secrets(PASSWORD) == PASSWORD, "nothing is left behind"


def test_after_a_reload_the_secrets_of_before_and_of_now_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "mm2.properties"
    current = config_of(file)
    with monitoring.watched(file, None, Event(), lambda _: None, current=current) as watch:
        fail(PASSWORD)
        current.replace(config_of(file, "the-next-one").config)
        fail("the-next-one")
        fail(PASSWORD)
        events = watch.events("A->B").events
    assert [one.message for one in events] == ["A->B: east-1: refused <hidden>"] * 3
