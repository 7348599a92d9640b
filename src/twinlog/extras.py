"""Checks that optional dependencies (Twinlog's extras) are installed, before they are imported."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from twinlog.errors import EnvironmentMissing


def require_extra(module: str, extra: str, what: str) -> None:
    """Raise EnvironmentMissing if `module` is not installed. `what`: what needs the module, for the
    message. Does not import the module.
    """
    if find_spec(module) is None:
        package = module.replace("_", "-")
        raise EnvironmentMissing(
            f"{what} needs the Python package {package} (extra [{extra}] of Twinlog): "
            f"pip install {' '.join(_requirements(extra)) or package}"
        )


def _requirements(extra: str) -> list[str]:
    """Return the requirements of an extra, quoted for a shell: `'pyspark<4.4,>=4.0'`.

    These requirements can be installed from a package index even if Twinlog was installed from a
    file.
    """
    try:
        requirements = metadata.requires("twinlog") or []
    except metadata.PackageNotFoundError:
        return []
    ending = f"; extra == '{extra}'"
    return [
        f"'{requirement.removesuffix(ending)}'"
        for requirement in requirements
        if requirement.endswith(ending)
    ]
