#!/bin/sh
# Drives the emulator with the official SDKs: PAI-DLC at its oldest and its newest version through
# every call that each knows, PaiStudio and AIWorkSpace, and both spot samples of Alibaba Cloud's
# document until their jobs have Succeeded. The samples differ from the document only in endpoint,
# region and masked ids; keys come from the environment, as the SDK's chain takes them.
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

# One environment for each version, filled once. A changed list of packages fills it anew.
prepare() {
  venv=${CARGO_TARGET_DIR:-$root/target}/sdk-venv-$1
  shift
  if [ "$(cat "$venv/installed" 2>/dev/null)" != "$*" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$venv/installed"
  fi
}
prepare oldest alibabacloud_pai_dlc20201203==1.4.17
oldest=$venv/bin/python
prepare newest alibabacloud_pai_dlc20201203==1.11.6 alibabacloud_paistudio20220112==2.6.2 \
  alibabacloud_aiworkspace20210204==8.3.5
newest=$venv/bin/python

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
until grep -qs '^listening on ' "$work/stdout"; do
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

# The samples' jobs sleep: everything else goes on meanwhile.
jobs=
for sample in spot_discount spot_price; do
  said=$("$oldest" "$here/$sample.py")
  echo "$sample: $said"
  jobs="$jobs ${said#jobId is }"
done
"$oldest" "$here/every_call.py"
"$newest" "$here/every_call.py"
"$newest" "$here/other_products.py"
for job in $jobs; do
  "$oldest" "$here/judge.py" "$job"
done
echo "every call was answered, both samples Succeeded"
