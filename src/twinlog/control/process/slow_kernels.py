"""Says once, when a mirror starts, that batches are decoded in Python."""

from __future__ import annotations

import logging

from twinlog.wire.kernels.chosen import CHOSEN, KERNELS_MISSING, Chosen

log = logging.getLogger(__name__)


def say_slow_kernels(chosen: Chosen = CHOSEN) -> None:
    """One line, where the compiled kernels are not what this installation has.

    Executors of a Spark cluster have the archive of this installation, or one of their own.
    """
    if chosen.is_compiled:
        return
    what = "batches that must be decoded, and small ones that are joined, take"
    log.warning("%s", chosen.warning(what), extra={"code": KERNELS_MISSING})
