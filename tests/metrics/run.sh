#!/bin/sh
# The page of figures, the alert rules and the board, by promtool and by what a live daemon shows;
# then 1,000 slow clients at one time on the daemon's socket: sweeps go on as they did, and a calm
# client is answered.
#
# Needs python3, and promtool: that of Debian's package prometheus is unpacked below the target folder
# where there is none. Usage: tests/metrics/run.sh [path of the spotkeeper binary]
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
if [ $# -ge 1 ]; then
  spotkeeper=$(realpath "$1")
else
  cargo build --quiet --manifest-path "$root/Cargo.toml"
  spotkeeper=$target/debug/spotkeeper
fi

promtool=$(command -v promtool || :)
if [ -z "$promtool" ]; then
  promtool=$target/promtool/usr/bin/promtool
  if [ ! -x "$promtool" ]; then
    mkdir -p "$target/promtool"
    (cd "$target/promtool" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } \
      && dpkg -x prometheus_*.deb . && rm prometheus_*.deb usr/bin/prometheus)
  fi
fi

work=$(mktemp -d)
emulator='' daemon=''
finish() {
  status=$?
  trap - EXIT INT TERM
  for process in $daemon $emulator; do
    kill "$process" 2>/dev/null || :
    wait "$process" 2>/dev/null || :
  done
  if [ $status != 0 ]; then
    echo "metrics: the daemon said:" >&2
    cat "$work/daemon.log" >&2 || :
  fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() { echo "metrics: $*" >&2; exit 1; }
until_true() {
  what=$1 tries=600
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "waited in vain until $what"
    sleep 0.1
  done
}

mkdir "$work/cloud" "$work/jobs.d"
"$spotkeeper" emulator --virtual --allow-root --acceptance 1s --access-key id:secret --dir "$work/cloud" \
  >"$work/emulator.out" 2>"$work/emulator.log" &
emulator=$!
until_true "the emulator listens" grep -q '^listening on' "$work/emulator.out"
url=$(sed -n 's/^listening on //p' "$work/emulator.out")

printf 'access_key_id = "id"\naccess_key_secret = "secret"\n' >"$work/keys.toml"
printf 'a-token\n' >"$work/token"
printf 'http://127.0.0.1:1/\n' >"$work/hook"
chmod 600 "$work/keys.toml" "$work/token" "$work/hook"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/spotkeeper.toml" <<FILE
owner = "metric"
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "500ms"
[api]
socket = "$work/api.sock"
listen = "127.0.0.1:$port"
token = { file = "token" }
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "$url"
credentials = { file = "keys.toml" }
acceptance = "1s"
[alerts.hook]
kind = "webhook"
url = { file = "hook" }
events = ["SUBMITTED"]
FILE
cat >"$work/jobs.d/train.toml" <<'FILE'
target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = "python train.py"
Envs = { EMULATOR_RUN_SECONDS = "600" }
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
[budget]
list_price_per_hour = "34.74"
FILE
"$spotkeeper" run --config "$work/spotkeeper.toml" 2>"$work/daemon.log" &
daemon=$!

page() { python3 "$root/tests/metrics/ask.py" "http://127.0.0.1:$port$1" "$work/page"; }
ready() { page '/readyz?verbose' >"$work/code" && [ "$(cat "$work/code")" = 200 ]; }
submitted() { page /metrics >/dev/null && grep -q 'spotkeeper_jobs{phase="RUNNING"} 1' "$work/page"; }
until_true "the daemon is ready" ready
until_true "the job runs" submitted

"$promtool" check metrics <"$work/page" || fail "promtool does not like the page"
"$promtool" check rules "$root/docs/monitoring/rules.yml" || fail "promtool does not like the rules"
python3 "$root/tests/metrics/names.py" "$root" "$work/page"
python3 "$root/tests/metrics/slow_clients.py" "$work/api.sock" "$port"
echo "metrics: all is well"
