"""Compiles the kernels while a wheel, or an editable installation, is made.

The library knows nothing of Python, so one wheel of a platform serves every Python. Without a C
compiler the wheel is made all the same, for any platform: Twinlog then uses the kernels' twin in
Python, and says so. TWINLOG_KERNELS=compiled makes that an error, for whoever publishes wheels.
A source distribution has the source alone: pyproject.toml names this hook for wheels only.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "twinlog", "wire", "kernels")
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden")


class KernelsHook(BuildHookInterface[Any]):
    """hatchling calls `initialize` before it gathers files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        folder = Path(self.root) / FOLDER
        if not compile_kernels(folder / "kernels.c", folder / "kernels.so"):
            return
        build_data["artifacts"].append(str(FOLDER / "kernels.so"))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def compile_kernels(source: Path, library: Path, *more: str) -> bool:
    """Whether the library was made; what was there is replaced at once, or not at all."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    new = library.with_name(f".{library.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, *more, "-o", str(new), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        reason = str(error)
    if not reason:
        new.replace(library)
        return True
    new.unlink(missing_ok=True)
    library.unlink(missing_ok=True)  # one of an older source must not be taken for this one
    text = f"kernels are not compiled, Twinlog will be slower: {compiler[0]}: {reason}"
    if os.environ.get("TWINLOG_KERNELS") == "compiled":
        raise SystemExit(text)
    print(text, file=sys.stderr)  # noqa: T201 (what a build says)
    return False
