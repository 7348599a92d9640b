"""The transforms' Spark uses Unix sockets if the path of its temporary folder is short enough."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.spark.gateway import SOCKET_NAME, Gateway


@pytest.mark.parametrize("length", (30, 60, 61, 70, 150))
def test_socket_can_be_created_in_a_folder_that_has_room_for_it(length: int) -> None:
    with TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / ("x" * (length - len(short) - 1))
        folder.mkdir()
        gateway: Any = SimpleNamespace(_folder=folder)
        has_room = Gateway.has_room_for_sockets.fget(gateway)  # type: ignore[attr-defined]
        is_bound = False
        with closing(socket.socket(socket.AF_UNIX)) as unix, suppress(OSError):
            unix.bind(str(folder / SOCKET_NAME))
            is_bound = True
        assert has_room == (length <= 60)
        assert is_bound or not has_room
