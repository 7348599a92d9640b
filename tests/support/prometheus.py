"""Runs Prometheus itself: it checks rules, scrapes as in production, and answers queries."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Self
from urllib.parse import urlencode

import psutil
import pytest
import yaml

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.monitor import Series, ask
from twinlog.addresses import Address

__all__ = ["RULES", "Found", "Prometheus", "check", "promtool", "steady"]

ROOT: Final = Path(__file__).resolve().parents[2]
DOWNLOADED_WITHIN_S: Final = 120.0
IS_NEEDED: Final = os.environ.get("TWINLOG_PROMETHEUS") == "needed"
"""True if a missing Prometheus fails tests instead of skipping them. Continuous integration sets
this, because a skipped test would be overlooked there.
"""
RULES: Final = ROOT / "deploy" / "prometheus" / "twinlog.rules.yml"


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it if Prometheus is needed. `what`: the reason."""
    (pytest.fail if IS_NEEDED else pytest.skip)(what)


def promtool() -> Path:
    """Return the path of promtool. If it is missing, skip the test, or fail it if Prometheus is
    needed.
    """
    try:
        ended = subprocess.run(
            [ROOT / "scripts" / "promtool"],
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOADED_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        missing("promtool is not on the PATH, and its download takes too long")
    if ended.returncode != 0:
        missing(ended.stderr.strip())
    return Path(ended.stdout.strip())


def check(*command: str | Path) -> None:
    """Run a command with promtool. Fail the test if the command finds an error."""
    ended = subprocess.run(
        [promtool(), *command], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def selector(name: str, labels: Sequence[tuple[str, str]]) -> str:
    """Return the series as it is written in rule tests."""
    quoted = (f'{label}="{_escaped(value)}"' for label, value in labels)
    return f"{name}{{{','.join(quoted)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Found(NamedTuple):
    """One sample in a response of Prometheus."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """A Prometheus that listens on loopback, has the alert rules loaded, and scrapes one address
    every second.
    """

    def __init__(
        self,
        folder: Path,
        scraped: Address,
        *,
        labels: Mapping[str, str] | None = None,
        rules: Path = RULES,
    ) -> None:
        self._folder = folder
        self._program = promtool().with_name("prometheus")
        if not self._program.exists():
            missing(f"{self._program} is not there, though promtool is")
        self._config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "twinlog",
                    "static_configs": [{"targets": [str(scraped)], "labels": dict(labels or {})}],
                }
            ],
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._address: Address | None = None

    def __enter__(self) -> Self:
        config = self._folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config))
        command = [
            str(self._program),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'prometheus'}",
            "--web.listen-address=127.0.0.1:0",
            "--log.level=warn",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._address = Address("127.0.0.1", eventually(self._port))
        return self

    def _port(self) -> int:
        """Return the port that the kernel has chosen. It is read from the process, because not
        every release logs it.
        """
        assert self._process is not None
        if self._process.poll() is not None:
            pytest.fail((self._folder / "prometheus.log").read_text()[-2000:])
        open_ones = psutil.Process(self._process.pid).net_connections("tcp4")
        ports = [one.laddr.port for one in open_ones if one.status == psutil.CONN_LISTEN]
        return ports[0] if ports else 0

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def query(self, expression: str) -> list[Found]:
        """Return the query's samples. Raises AssertionError while Prometheus is starting."""
        answer = self._get("query", query=expression)
        assert answer["resultType"] == "vector", answer
        return [Found(one["metric"], float(one["value"][1])) for one in answer["result"]]

    def rules(self) -> list[Mapping[str, Any]]:
        """Return every rule with its last evaluation."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        assert self._address is not None
        answer = ask(self._address, f"/api/v1/{what}?{urlencode(parameters)}")
        if answer.status == 400:
            pytest.fail(f"{parameters}: {answer.body.decode()}")
        assert answer.status == 200, "it is only coming up"
        return answer.json["data"]


def steady(series: Series, labels: Mapping[str, str]) -> dict[str, float]:
    """Return the series' values by selector, with the scrape's labels added. Series whose value is
    NaN are left out.
    """
    return {
        selector(name, (*own, *labels.items())): value
        for (name, own), value in series.items()
        if value == value  # noqa: PLR0124 (NaN alone is not itself)
    }
