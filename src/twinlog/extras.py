"""Checks optional dependencies (`pip install 'twinlog[EXTRA]'`) before they are imported."""

from __future__ import annotations

from importlib.util import find_spec

from twinlog.errors import EnvironmentMissing


def require_extra(module: str, extra: str, what: str) -> None:
    """Raise EnvironmentMissing if the package that `what` needs is not installed. Does not import
    it.
    """
    if find_spec(module) is None:
        raise EnvironmentMissing(
            f"{what} needs the Python package {module.replace('_', '-')}: "
            f"pip install 'twinlog[{extra}]'"
        )
