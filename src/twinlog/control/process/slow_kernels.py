"""Says once, when a mirror starts, that batches are decoded in Python."""

from __future__ import annotations

import logging

from twinlog.wire.kernels.chosen import CHOSEN, VARIABLE, Chosen

log = logging.getLogger(__name__)


def say_slow_kernels(chosen: Chosen = CHOSEN) -> None:
    """One line, where the compiled kernels are not what this installation has.

    Executors of a Spark cluster have the archive of this installation, or one of their own.
    """
    if chosen.is_compiled:
        return
    code = "KERNELS_MISSING"
    log.warning(
        "the compiled kernels are not used (%s): batches that must be decoded, and small ones that "
        "are joined, take several times the CPU; install a wheel of this platform, or a C compiler "
        "and then Twinlog again; unset %s if it is set [%s]",
        chosen.why_slow,
        VARIABLE,
        code,
        extra={"code": code},
    )
