"""Certificates of a running mirror: log lines about them, their series, and the messages to
lanes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.certificates import Issued, shared_authority
from tests.support.driver import Driver, plan_of
from tests.support.monitor import series
from tests.support.settings import settings_for
from tests.support.snapshots import flow
from twinlog.cluster.certificates import DAY_S
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security import renewal
from twinlog.cluster.security.security_keys import load_security
from twinlog.control.process.run import KeyFileWatch
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.lane.messages import Renewed, Work

SERIES = "twinlog_certificate_expiry_timestamp_seconds"
SOON, LATER = (shared_authority().issue("mirror", days=(-1, days)) for days in (3, 20))


def end_of(issued: Issued) -> int:
    return int(issued.certificate.not_valid_after_utc.timestamp())


class Keys:
    """A key file with the credentials for cluster A."""

    def __init__(self, folder: Path, issued: Issued = SOON) -> None:
        self.path = folder / "me.pem"
        self.write(issued)
        keys = {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.path),
        }
        security = load_security(keys, where="A")
        self.settings: ClusterSettings = replace(settings_for("host:1"), security=security)

    def write(self, issued: Issued) -> None:
        self.path.write_text(issued.key_pem + issued.pem)

    @property
    def flow(self) -> FlowSnapshot:
        return flow(clusters=lambda: (self.settings, settings_for("host:2", "B"), self.settings))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setattr(renewal, "CHECK_EVERY_S", 0.0)
    return Keys(tmp_path)


def test_a_certificate_that_ends_soon_is_reported_once_a_day_until_it_is_renewed(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    now = end_of(SOON) - 3 * DAY_S
    watch = KeyFileWatch(now=lambda: now)
    watch.update([keys.flow])

    def said() -> list[str]:
        caplog.clear()
        watch.turn()
        return [record.getMessage() for record in caplog.records]

    (line,) = said()
    assert line.endswith("[CERTIFICATE_ENDS_SOON]")
    assert str(keys.path) in line
    assert "CN=mirror" in line
    now += DAY_S - 1
    assert said() == []
    now += 1
    assert len(said()) == 1
    now = end_of(SOON) + 1
    (line,) = said()
    assert line.endswith("[CERTIFICATE_EXPIRED]")
    keys.write(LATER)
    now = end_of(LATER) - 15 * DAY_S
    assert said() == []


def test_the_series_has_the_certificates_in_use(keys: Keys) -> None:
    monitor = Monitor()

    def served() -> dict[tuple[tuple[str, str], ...], float]:
        answer = monitor.answer("/metrics")
        assert answer is not None
        return {
            have: value for (name, have), value in series(answer.body).items() if name == SERIES
        }

    monitor.update([keys.flow, structs.replace(keys.flow, flow="A->C")])
    labels = (("cluster", "A"), ("what", "client_certificate"))
    assert served() == {labels: end_of(SOON)}
    keys.write(LATER)
    watch = KeyFileWatch()
    watch.update([keys.flow])
    watch.turn()
    assert served() == {labels: end_of(LATER)}


def test_renewed_files_are_reported_once(keys: Keys) -> None:
    renewed: list[bool] = []
    watch = KeyFileWatch(on_renewed=lambda: renewed.append(True))
    watch.update([keys.flow])
    watch.turn()
    assert renewed == []
    keys.write(LATER)
    watch.turn()
    watch.turn()
    assert renewed == [True]


def test_no_secret_is_in_the_written_status_of_a_flow(keys: Keys) -> None:
    written = f"{keys.flow.status} {keys.flow!r} {keys.settings!r}"
    assert "PRIVATE KEY" not in written
    assert not hasattr(keys.flow.status, "clusters")


def test_lanes_get_the_content_of_key_files_at_their_start_and_after_changes(
    keys: Keys,
) -> None:
    driver = Driver([plan_of(0)])
    driver.run.work = structs.replace(driver.run.work, source=keys.settings)
    security = keys.settings.security
    assert security is not None
    driver.run.tick()
    (first, _) = driver.lanes_of(1)
    (work,) = first.all_sent(Work)
    assert work.source.security == replace(security, files=())
    driver.run.tick()
    assert first.all_sent(Renewed) == []

    keys.write(LATER)
    renewal.current(security)
    driver.run.tick()
    driver.run.tick()
    (sent,) = first.all_sent(Renewed)
    assert sent.source is not None
    assert sent.source.certificate_chain_pem == LATER.pem
    assert sent.source.files == ()
    assert sent.target is None
    driver.pass_time(301)
    (work,) = driver.connect(2, 0).all_sent(Work)
    assert work.source.security == sent.source, "a lane of the next lease begins with them"
