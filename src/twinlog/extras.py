"""Optional dependencies (`pip install 'twinlog[EXTRA]'`). Code that needs one checks it
here first.
"""

from __future__ import annotations

from importlib.util import find_spec

from twinlog.errors import EnvironmentMissing


def require_extra(module: str, extra: str, what: str) -> None:
    """Raise EnvironmentMissing if `what` needs a package that is not installed. The package is not
    imported.
    """
    if find_spec(module) is None:
        raise EnvironmentMissing(
            f"{what} needs the Python package {module.replace('_', '-')}: "
            f"pip install 'twinlog[{extra}]'"
        )
