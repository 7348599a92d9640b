"""Looks at the key files of all flows while they run, and warns of certificates that end soon.

Connections look themselves (`cluster.security.renewal`). This thread looks where nothing connects:
lanes learn from the driver what their next connection needs, also while the driver needs none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from twinlog.cluster.certificates import DAY_S, CertificateEnd, Ending, certificate_ends, urgent
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.renewal import CHECK_EVERY_S, current
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.control.watch.snapshot import FlowSnapshot

log = logging.getLogger(__name__)

TURN_S: Final = CHECK_EVERY_S / 2
"""A check that comes a moment too early must not cost a whole interval."""


class KeyFileWatch:
    """A thread from `with` to its end; `update` tells it which flows there are."""

    def __init__(
        self,
        *,
        on_renewed: Callable[[], object] = lambda: None,
        turn_s: float = TURN_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_renewed` is called when other files are in use than before; `now` is in seconds since
        1970.
        """
        self._on_renewed = on_renewed
        self._in_use: dict[SecuritySettings, SecuritySettings] = {}
        self._turn_s = turn_s
        self._now = now
        self._flows: Sequence[FlowSnapshot] = ()
        self._said: dict[CertificateEnd, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="twinlog-key-files", daemon=True)

    def update(self, flows: Sequence[FlowSnapshot]) -> None:
        """All flows as they are now; from any thread."""
        self._flows = flows

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # not waited for: it may hang in a read of a disk that does not answer
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._turn_s):
            self.turn()

    def turn(self) -> None:
        """One check of all files, and what is to be said of their certificates."""
        clusters = [one for flow in self._flows for one in flow.clusters()]
        given = {one.security for one in clusters if one.security is not None}
        in_use = {security: current(security) for security in given}
        is_renewed = any(self._in_use.get(old, old) != new for old, new in in_use.items())
        self._in_use = in_use
        if is_renewed:
            self._on_renewed()
        self._log_ends(clusters)

    def _log_ends(self, clusters: Sequence[ClusterSettings]) -> None:
        now = self._now()
        for ending, end in urgent(certificate_ends(clusters), now):
            if now - self._said.get(end, float("-inf")) >= DAY_S:
                self._said[end] = now
                is_over = ending is Ending.OVER
                code = "CERTIFICATE_EXPIRED" if is_over else "CERTIFICATE_ENDS_SOON"
                log.warning("%s [%s]", end.line(now), code, extra={"code": code})
