"""What lanes enter both clusters with: they have no key files, so the driver sends it."""

from __future__ import annotations

from dataclasses import replace

from twinlog.cluster.security.renewal import known
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.lane.messages import Renewed, Work


def credentials_of(work: Work) -> Renewed:
    """As the key files were when they were last checked; no file is read here."""
    return Renewed(source=_now(work.source.security), target=_now(work.target.security))


def with_credentials(work: Work, now: Renewed) -> Work:
    """The same work with these."""
    return replace(
        work,
        source=replace(work.source, security=now.source),
        target=replace(work.target, security=now.target),
    )


def _now(settings: SecuritySettings | None) -> SecuritySettings | None:
    # without the files' names: a file of that name on the lane's machine is another
    return None if settings is None else replace(known(settings), files=())
