#!/usr/bin/env bash
# The arguments of MirrorMaker 1's script, for `twinlog mirror-maker`; the rest is as in
# connect-mirror-maker.sh.
set -euo pipefail
export TWINLOG_OLD_COMMAND=mirror-maker
exec "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/connect-mirror-maker.sh" "$@"
