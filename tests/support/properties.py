"""Loads configuration files for tests from lines of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.load import load
from twinlog.config.values.warnings import ConfigWarning, WarningCode
from twinlog.errors import ConfigError
from twinlog.model import Flow

__all__ = ["BASE", "IDENTITY", "Loader", "flow_of", "flows_of", "loader", "refusal", "warnings_of"]

BASE = (
    "clusters = A, B",
    "A.bootstrap.servers = a:9092",
    "B.bootstrap.servers = b:9092",
    "A->B.enabled = true",
)
"""The lines of the shortest valid file. Tests add lines from line 5 on."""


class Loader(Protocol):
    """Writes lines to a file named `mm2.properties`, and loads it."""

    def __call__(
        self,
        *lines: str,
        base: Sequence[str] = BASE,
        clusters: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> MirrorConfig: ...


def loader(folder: Path) -> Loader:
    def write_and_load(
        *lines: str,
        base: Sequence[str] = BASE,
        clusters: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> MirrorConfig:
        file = folder / "mm2.properties"
        file.write_bytes("\n".join([*base, *lines, ""]).encode("utf-8"))
        return load(file, clusters, environment or {})

    return write_and_load


def flow_of(config: MirrorConfig, source: str = "A", target: str = "B") -> FlowConfig:
    return next(one for one in config.flows if one.flow == Flow(source, target))


def refusal(run: Callable[[], MirrorConfig]) -> str:
    """Return the message of the ConfigError that `run` raises, from the file's name on."""
    with pytest.raises(ConfigError) as caught:
        run()
    assert caught.value.exit_code == 2
    assert caught.value.more == (), "one mistake is one error"
    message = str(caught.value)
    return message[message.find("mm2.properties") :] if "mm2.properties" in message else message


def warnings_of(config: MirrorConfig, code: WarningCode) -> list[ConfigWarning]:
    return [warning for warning in config.warnings if warning.code is code]


IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def flows_of(folder: Path, *lines: str) -> dict[str, FlowConfig]:
    enabled = sorted({line.split(".")[0] for line in lines if "->" in line})
    aliases = sorted({alias for flow in enabled for alias in flow.split("->")})
    base = [
        f"clusters = {', '.join(aliases)}",
        *(f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in aliases),
        *(f"{flow}.enabled = true" for flow in enabled),
    ]
    config = loader(folder)(*lines, base=base)
    return {str(flow.flow): flow for flow in config.flows}
