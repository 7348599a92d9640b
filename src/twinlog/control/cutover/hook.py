"""Commands of the operator that a switchover runs: they switch DNS, a secret, a proxy, or stop and
start producers.

`/bin/sh` runs them, so pipes, `&&` and variables work. A hook fails if the shell's exit code is not
0. A pipeline's exit code is that of its last command, unless the hook sets `pipefail` in a shell
that supports it.

A hook is run again when the command is given again, so it must be safe to repeat. Its output goes
to stderr unchanged and never becomes part of a message of Twinlog.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import FlowError

STDERR: Final = 2


def hook_environment(scope: CutoverScope, step: str) -> dict[str, str]:
    """What a hook gets, beside the environment of this process."""
    servers = {
        side: ",".join(f"{host}:{port}" for host, port in settings.bootstrap)
        for side, settings in (("SOURCE", scope.setup.source), ("TARGET", scope.setup.target))
    }
    return {
        "TWINLOG_STEP": step,
        "TWINLOG_FLOW": scope.name,
        "TWINLOG_SOURCE": scope.config.flow.source,
        "TWINLOG_TARGET": scope.config.flow.target,
        "TWINLOG_SOURCE_BOOTSTRAP": servers["SOURCE"],
        "TWINLOG_TARGET_BOOTSTRAP": servers["TARGET"],
    }


def run_hook(command: str, environment: Mapping[str, str]) -> None:
    """Run the command in a shell until it ends.

    Raises FlowError (HOOK_FAILED) if the shell's exit code is not 0 or the shell cannot be started.
    """
    words = ["/bin/sh", "-c", command]
    try:
        done = subprocess.run(words, env={**os.environ, **environment}, stdout=STDERR, check=False)
    except (OSError, ValueError) as error:
        raise _failed(environment, str(error)) from error
    if done.returncode:
        raise _failed(environment, f"it ended with {done.returncode}")


def _failed(environment: Mapping[str, str], why: str) -> FlowError:
    return FlowError(
        f"{environment['TWINLOG_FLOW']}: the hook for the step {environment['TWINLOG_STEP']} "
        f"failed: {why}; mend it and give the same command again",
        code="HOOK_FAILED",
    )
