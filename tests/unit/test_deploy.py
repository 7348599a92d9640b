"""The systemd unit has the required settings, and systemd accepts it."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S
from twinlog.cli.main import COMMANDS

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "twinlog.service"


def service() -> configparser.SectionProxy:
    unit = configparser.RawConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    return unit["Service"]


def test_it_is_notified_and_started_again_but_not_for_a_wrong_configuration() -> None:
    found = service()
    expected = {
        "Type": "notify",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "2",
        "KillMode": "mixed",
        "ExecReload": "/bin/kill -HUP $MAINPID",
    }
    assert {key: found[key] for key in expected} == expected


def test_it_runs_the_command_that_people_run() -> None:
    program, verb, _ = service()["ExecStart"].split()
    assert Path(program).name == "twinlog"
    assert verb in COMMANDS


def test_the_service_has_only_the_rights_of_a_mirror() -> None:
    found = service()
    switches = {
        *("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"),
        *("ProtectKernelTunables", "ProtectKernelModules", "ProtectControlGroups"),
        *("RestrictSUIDSGID", "LockPersonality", "RestrictNamespaces"),
    }
    assert {name for name in switches if found.get(name) != "yes"} == set()
    assert found["ProtectSystem"] == "strict"
    assert not found["CapabilityBoundingSet"]
    assert found["RestrictAddressFamilies"].split() == [
        "AF_INET",
        "AF_INET6",
        "AF_UNIX",
        "AF_NETLINK",
    ]
    assert found["SystemCallFilter"] == "@system-service"
    assert found["UMask"] == "0077"
    assert "MemoryDenyWriteExecute" not in found, "a JVM could not start"


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@needs_systemd
def test_systemd_finds_little_exposed(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text())
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25"]
    told = subprocess.run(
        [*command, str(here)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if "unrecognized option" in told.stderr:
        pytest.skip("this systemd-analyze only looks at running units")
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr


@needs_systemd
def test_systemd_understands_it(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    program = service()["ExecStart"].split()[0]
    here.write_text(UNIT.read_text().replace(program, sys.executable))
    command = ["systemd-analyze", "verify", str(here)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    about_it = [line for line in told.stderr.splitlines() if UNIT.name in line]
    assert about_it == []
