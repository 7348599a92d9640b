#!/usr/bin/env bash
# The arguments of MirrorMaker 2's script, for `twinlog mirror`.
#   -daemon  first: in the background; what it prints goes to LOG_DIR/mirrorMaker.out
#   TWINLOG  the command to run instead of the `twinlog` beside this script, in this tree or on the PATH
#   LOG_DIR  the folder of the output of -daemon, by default `logs` beside the folder of this script
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=${here%/*}
command=${TWINLOG_OLD_COMMAND:-mirror}
unset TWINLOG_OLD_COMMAND
for twinlog in "${TWINLOG:-}" "$here/twinlog" "$root/.venv/bin/twinlog" twinlog; do
  [ ! -x "$twinlog" ] || break
done
[ "${1:-}" = -daemon ] || exec "$twinlog" "$command" "$@"

shift
logs=${LOG_DIR:-$root/logs}
output=$logs/mirrorMaker.out
mkdir -p "$logs"
# a session of its own: neither Ctrl-C nor the end of the terminal reaches it
setsid "$twinlog" "$command" "$@" >"$output" 2>&1 </dev/null &
pid=$!
# a wrong file or flag ends it within a second of its first line, and is reported here; a slow machine
# takes seconds to the first line
printed=0
for _ in {1..50}; do
  sleep 0.1
  if ! kill -0 "$pid" 2>/dev/null; then
    wait "$pid" && code=0 || code=$?
    cat "$output" >&2
    exit "$code"
  fi
  [ ! -s "$output" ] || printed=$((printed + 1))
  [ "$printed" -lt 10 ] || break
done
echo "process $pid; what it prints goes to $output; end it with: kill $pid"
