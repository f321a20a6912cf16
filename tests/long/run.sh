#!/bin/sh
# The attacks of CI at their full length, by hand: ten minutes of each network fault, then kills of
# the daemon, 500 at random times and 50 at each crash point. Wants root, and the tools that .ci/run
# installs. docs/reliability.md says how long it takes.
#
# SPOTKEEPER_FAULT_SECONDS, SPOTKEEPER_KILLS: less of it. SPOTKEEPER_TEST_SEED: other kills.
set -eu
cd "$(dirname "$0")/../.."
kills=${SPOTKEEPER_KILLS:-500}

SPOTKEEPER_FAULT_SECONDS=${SPOTKEEPER_FAULT_SECONDS:-600} sh tests/network/run.sh

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Without a pipe: its status would be that of what shows the log.
status=0
SPOTKEEPER_KILLS=$kills cargo test --test daemon crash:: -- --nocapture >"$log" 2>&1 || status=$?
cat "$log"
[ "$status" = 0 ] || exit "$status"
grep -q 'at random times$' "$log" || { echo "no kill was made" >&2; exit 1; }
