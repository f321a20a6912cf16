#!/bin/sh
# The document's two scripts, sent by the official SDK, and the same jobs as job files, sent by the
# daemon: both reach one emulator, which keeps the bytes of each CreateJob; compare.py then names
# every difference between the two, and fails for one that is not meant.
#
# Needs python3 with venv, and PyPI. Usage: tests/sdk/document.sh [path of the spotkeeper binary]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ $# -ge 1 ]; then
  spotkeeper=$1
else
  cargo build --manifest-path "$root/Cargo.toml"
  spotkeeper=${CARGO_TARGET_DIR:-$root/target}/debug/spotkeeper
fi

# The version that the document pins.
venv=${CARGO_TARGET_DIR:-$root/target}/sdk-document-venv
if [ ! -e "$venv/installed" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check 'alibabacloud_pai_dlc20201203==1.4.17'
  touch "$venv/installed"
fi

work=$(mktemp -d)
emulator=
daemon=
end() {
  if [ -n "$1" ]; then
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
  fi
}
cleanup() {
  end "$daemon"
  end "$emulator"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# Waits up to 60 s until the command holds; shows the log if it does not.
until_holds() {
  log=$1
  shift
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ]; then
      cat "$log" >&2
      exit 1
    fi
    sleep 0.1
  done
}
creates() { [ "$(grep -c '"event":"create"' "$work/emulator/ledger.jsonl")" -ge "$1" ]; }

touch "$work/stdout" "$work/stderr"
"$spotkeeper" emulator --listen 127.0.0.1:0 --access-key testid:testsecret --dir "$work/emulator" \
  --virtual --market constant:0.3 >"$work/stdout" 2>"$work/stderr" &
emulator=$!
until_holds "$work/stderr" grep -q '^listening on ' "$work/stdout"
EMULATOR=$(sed -n '1s/^listening on http:\/\///p' "$work/stdout")
export EMULATOR
export ALIBABA_CLOUD_ACCESS_KEY_ID=testid ALIBABA_CLOUD_ACCESS_KEY_SECRET=testsecret
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

sent=0
for sample in spot_discount spot_price; do
  said=$("$venv/bin/python" "$here/$sample.py")
  echo "$sample: $said"
  sent=$((sent + 1))
  until_holds "$work/stderr" creates $sent

  # An installation of its own for each: both job files have the name of the document.
  mkdir -p "$work/$sample/jobs.d"
  cp "$here/$sample.toml" "$work/$sample/jobs.d/"
  {
    case $sample in
    spot_discount) echo 'owner = "docsd2"' ;;
    *) echo 'owner = "docsp3"' ;;
    esac
    cat <<END
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "200ms"
[api]
socket = "api.sock"
[targets.hangzhou]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "http://$EMULATOR"
credentials = { environment = true }
acceptance = "1s"
END
  } >"$work/$sample/spotkeeper.toml"
  "$spotkeeper" check --config "$work/$sample/spotkeeper.toml"
  # What import makes of the SDK's job, live and by its bytes, is accepted too.
  "$spotkeeper" import --config "$work/$sample/spotkeeper.toml" --job "${said#jobId is }" \
    --write "$work/$sample/live.toml"
  cat "$work"/emulator/requests/*.json | head -c 65536 | "$venv/bin/python" -c '
import json, sys
print(json.dumps(json.JSONDecoder().raw_decode(sys.stdin.read())[0]))' |
    "$spotkeeper" import --config "$work/$sample/spotkeeper.toml" - >"$work/$sample/bytes.toml"
  "$spotkeeper" check --config "$work/$sample/spotkeeper.toml" "$work/$sample/live.toml"
  "$spotkeeper" check --config "$work/$sample/spotkeeper.toml" "$work/$sample/bytes.toml"
  "$spotkeeper" run --config "$work/$sample/spotkeeper.toml" >"$work/$sample/log" 2>&1 &
  daemon=$!
  sent=$((sent + 1))
  until_holds "$work/$sample/log" creates $sent
  end "$daemon"
  daemon=
done

python3 "$here/compare.py" "$work/emulator"
