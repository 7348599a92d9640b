"""Takes the pictures of `check`, `mirror`, `status --watch` and `demo` for the docs, on terminals
of 80 and 120 columns, with real clusters.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from tests.support.pictures import FOLDER
from tests.support.terminal import Terminal
from twinlog.demo.shop import fill
from twinlog.sandbox import QUICK_JVM, LocalCluster

__all__: list[str] = []

WIDTHS: Final = (80, 120)
RECORDS: Final = 1_000_000
MORE: Final = 200_000
BYTES_PER_S: Final = 6_000_000
DEMO_COLUMNS: Final = 92


def main() -> None:
    """Write all pictures, replacing existing ones."""
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster("eu", jvm_flags=QUICK_JVM) as source,
        LocalCluster("us", jvm_flags=QUICK_JVM) as target,
    ):
        file = Path(name) / "mm2.properties"
        file.write_text(
            "clusters = eu, us\neu->us.enabled = true\neu->us.topics = .*\n"
            f"eu.bootstrap.servers = {source.bootstrap}\n"
            f"us.bootstrap.servers = {target.bootstrap}\n"
            "replication.factor = 1\nemit.heartbeats.enabled = false\n"
            # between brokers on one machine, the copy would end before a picture can be taken
            f"twinlog.max.bytes.per.second = {BYTES_PER_S}\n"
        )
        fill(source.bootstrap, RECORDS)
        _checked(file)
        with Terminal(120, "mirror", str(file), "--listen", "off") as mirror:
            mirror.until(lambda text: "━" in text and bool(re.search(r"\d+ s *$", text, re.M)))
            _keep(mirror, "mirror", 120)
            mirror.until(lambda text: "━" not in text and "at the end" in text)
            _watched(file, source)
            mirror.interrupt()
            mirror.wait()
        _narrow(file, source)
    _demo()


def _demo() -> None:
    with Terminal(DEMO_COLUMNS, "demo", "--seconds", "20") as terminal:
        terminal.wait()
        (FOLDER / "demo.svg").write_text(terminal.picture("twinlog demo --seconds 20"))


def _checked(file: Path) -> None:
    for width in WIDTHS:
        with Terminal(width, "check", str(file)) as terminal:
            terminal.wait()
            _keep(terminal, "check", width)


def _watched(file: Path, source: LocalCluster) -> None:
    """Take a picture of `status --watch` while records wait to be copied."""
    for width in WIDTHS:
        with Terminal(width, "status", str(file), "--watch") as terminal:
            terminal.until(lambda text: "total:" in text)
            fill(source.bootstrap, MORE)
            terminal.until(lambda text: bool(re.search(r"[1-9][\d,]* records/s", text)))
            _keep(terminal, "status", width)
            terminal.interrupt()
            terminal.wait()


def _narrow(file: Path, source: LocalCluster) -> None:
    """Take a picture of the same mirror on a narrow terminal, after it was restarted with a new
    backlog.
    """
    fill(source.bootstrap, RECORDS)
    with Terminal(80, "mirror", str(file), "--listen", "off") as mirror:
        mirror.until(lambda text: "━" in text and bool(re.search(r"\d+ s *$", text, re.M)))
        _keep(mirror, "mirror", 80)
        mirror.interrupt()
        mirror.wait()


def _keep(terminal: Terminal, name: str, width: int) -> None:
    words = {"status": "status mm2.properties --watch"}.get(name, f"{name} mm2.properties")
    (FOLDER / f"{name}-{width}.svg").write_text(terminal.picture(f"twinlog {words}"))


if __name__ == "__main__":
    main()
