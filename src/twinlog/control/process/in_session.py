"""Runs the flows of configuration files in a Spark session of the caller: `twinlog.run`."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load_all
from twinlog.control.process.commands import CommandPort, Stop
from twinlog.control.process.run import MirrorOptions, MirrorResult, run_mirror
from twinlog.extras import require_extra

log = logging.getLogger(__name__)


def run_in_session(
    spark: Any, files: Sequence[str | Path], *, once: bool, lanes: int | None, may_be_open: bool
) -> MirrorResult:
    """Run until everything is copied (`once`), or until the caller is interrupted. Then shut down
    cleanly. Raises TwinlogError.
    """
    require_extra("pyspark", "spark", "twinlog.run")
    from twinlog.spark.attached import session_options

    options = session_options(spark, may_be_open=may_be_open)

    paths = [Path(file) for file in files]

    def read() -> MirrorConfig:
        return load_all(paths)

    config, commands = read(), CommandPort()
    for warning in config.warnings:
        log.warning("%s", warning, extra={"code": warning.code})
    how = MirrorOptions(
        once=once,
        lanes=lanes,
        spark=options,
        commands=commands,
        read_again=None if once else read,
    )
    # in a separate thread, because an interrupt must not stop the thread that decides
    with _interrupts(), ThreadPoolExecutor(1, "twinlog-run") as pool:
        running = pool.submit(run_mirror, config, paths[0], how)
        try:
            return running.result()
        except KeyboardInterrupt:
            commands.put(Stop(who="an interrupt"))
            return running.result()


@contextmanager
def _interrupts() -> Iterator[None]:
    """Let Ctrl-C only raise KeyboardInterrupt: PySpark's handler would cancel the lanes' jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
