"""A thread of the demo, whose errors end the demo."""

from __future__ import annotations

import threading
from collections.abc import Callable


class DemoWorker:
    """Runs `_work` until it is stopped, and passes its error to `on_error`, in the same thread."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (the demo's main thread raises it)
            self._on_error(error)

    def _work(self) -> None:
        """Work until `_stop` is set."""
        raise NotImplementedError
