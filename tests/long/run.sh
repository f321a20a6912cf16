#!/bin/sh
# The attacks of CI at their full length, by hand: ten minutes of each network fault, 500 kills at
# random times and 50 at each crash point. Wants root, and the tools that .ci/run installs.
set -eu
cd "$(dirname "$0")/../.."
SPOTKEEPER_FAULT_SECONDS=${SPOTKEEPER_FAULT_SECONDS:-600} sh tests/network/run.sh
SPOTKEEPER_KILLS=${SPOTKEEPER_KILLS:-500} cargo test --test daemon crash -- --nocapture
