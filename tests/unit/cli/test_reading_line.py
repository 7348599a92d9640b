"""A line on the terminal shows the progress of a long read."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
from collections.abc import Callable, Iterator

import pytest

from tests.support.terminal import Screen
from twinlog.cli.terminal.reading import ECHO, ReadingLine

END = "\a"
LONG = "us-east-1->eu-central-1, rechecking the differences"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Callable[[], str]]]:
    """A function that opens a terminal of the given width. It returns a function that returns the
    output since its last call.
    """
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLUMNS", raising=False)
    open_ones: list[int] = []

    def terminal(columns: int) -> Callable[[], str]:
        master, slave = pty.openpty()
        open_ones.append(master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        stream = os.fdopen(slave, "w")
        monkeypatch.setattr(sys, "stderr", stream)

        def written() -> str:
            stream.write(END)
            stream.flush()
            data = b""
            while not data.endswith(END.encode()):
                data += os.read(master, 1 << 16)
            return data.decode().removesuffix(END)

        return written

    yield terminal
    for one in open_ones:
        os.close(one)


@pytest.mark.parametrize("columns", [12, 20, 40, 60, 120])
def test_it_is_one_line_however_narrow_and_leaves_nothing(
    terminal: Callable[[int], Callable[[], str]], columns: int
) -> None:
    written, screen = terminal(columns), Screen(columns)
    with ReadingLine() as reading:
        for name in ("A->B", LONG, "\x1b]0;title\x07"):
            reading.step(name, 0, 102_000_000)
            reading.step(name, 102_000_000, 102_000_000)
            screen.feed(written())
            assert len(screen.text) <= columns - ECHO, screen.text
            assert screen.text.count("100 %") == 1
            assert ("102,000,000 of 102,000,000 offsets" in screen.text) is (columns >= 100)
        assert columns < 60 or screen.text.startswith("\\x1b]0;title\\x07 ")
    screen.feed(written())
    assert not screen.text


def test_the_end_is_shown_however_soon_it_comes(
    terminal: Callable[[int], Callable[[], str]],
) -> None:
    written = terminal(80)
    with ReadingLine() as reading:
        for done in range(100):
            reading.step("A->B", done, 99)
        assert written().count("%") <= 3  # only some of the steps are shown
        reading.step("B->A", 0, 0)
        assert "100 %, 0 of 0 offsets" in written()


def test_it_is_removed_before_an_error_is_printed(
    terminal: Callable[[int], Callable[[], str]],
) -> None:
    written, screen = terminal(80), Screen(80)
    with pytest.raises(ValueError, match="no"), ReadingLine() as reading:
        reading.step("A->B", 1, 3)
        raise ValueError("no")
    sys.stderr.write("error: no\n")
    screen.feed(written())
    assert screen.text.strip() == "error: no"


def test_nothing_is_written_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with ReadingLine() as reading:
        reading.step("A->B", 1, 1)
    assert not stream.getvalue()
