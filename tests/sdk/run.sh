#!/bin/sh
# Runs both spot samples of Alibaba Cloud's document with the official SDK against the emulator
# and waits until their jobs have Succeeded. The samples differ from the document only in
# endpoint, region and masked ids; keys come from the environment, as the SDK's chain takes them.
#
# Needs python3 with venv, PyPI, and a host that lets us mount (root or user namespaces): the
# samples list /mnt/data. Usage: tests/sdk/run.sh [path of the spotkeeper binary]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ $# -ge 1 ]; then
  spotkeeper=$1
else
  cargo build --manifest-path "$root/Cargo.toml"
  spotkeeper=${CARGO_TARGET_DIR:-$root/target}/debug/spotkeeper
fi

venv=${CARGO_TARGET_DIR:-$root/target}/sdk-venv
if [ ! -e "$venv/installed" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check 'alibabacloud_pai_dlc20201203==1.4.17'
  touch "$venv/installed"
fi

work=$(mktemp -d)
emulator=
cleanup() {
  if [ -n "$emulator" ]; then
    kill "$emulator" 2>/dev/null || true
    wait "$emulator" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

mkdir "$work/data"
echo hello >"$work/data/mounted.txt"
"$spotkeeper" emulator --listen 127.0.0.1:0 --access-key testid:testsecret --dir "$work/emulator" \
  --phase-delay 300ms --market constant:0.3 --allow-root --data-mount "$work/data" \
  >"$work/stdout" 2>"$work/stderr" &
emulator=$!

tries=0
until grep -q '^listening on ' "$work/stdout"; do
  tries=$((tries + 1))
  if [ $tries -gt 100 ] || ! kill -0 "$emulator" 2>/dev/null; then
    cat "$work/stdout" "$work/stderr" >&2
    exit 1
  fi
  sleep 0.1
done
EMULATOR=$(sed -n '1s/^listening on http:\/\///p' "$work/stdout")
export EMULATOR
export ALIBABA_CLOUD_ACCESS_KEY_ID=testid ALIBABA_CLOUD_ACCESS_KEY_SECRET=testsecret
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

jobs=
for sample in spot_discount spot_price; do
  said=$("$venv/bin/python" "$here/$sample.py")
  echo "$sample: $said"
  jobs="$jobs ${said#jobId is }"
done
for job in $jobs; do
  "$venv/bin/python" "$here/judge.py" "$job"
done
echo "both samples Succeeded"
