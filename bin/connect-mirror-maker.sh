#!/usr/bin/env bash
# The arguments of MirrorMaker 2's script, for `twinlog mirror`.
#   TWINLOG  the command to run instead of the `twinlog` beside this tree or on the PATH
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
twinlog=${TWINLOG:-$root/.venv/bin/twinlog}
[ -x "$twinlog" ] || twinlog=twinlog
if [ "${1:-}" = -daemon ]; then
  echo "connect-mirror-maker.sh: -daemon: let a service start it, see deploy/twinlog.service" >&2
  exit 2
fi
exec "$twinlog" mirror "$@"
