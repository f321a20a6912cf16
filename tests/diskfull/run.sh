#!/bin/sh
# A full disk under the state folder: nothing is submitted while the store cannot write, and exactly
# one attempt follows once there is room again. Wants root: the small file system is mounted in a
# name space of its own, which goes when this script ends.
#
# usage: run.sh [PROGRAM]      PROGRAM: spotkeeper, target/debug/spotkeeper by default
set -eu

if [ "${SPOTKEEPER_DISKFULL:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "diskfull: wants root" >&2; exit 1; }
    SPOTKEEPER_DISKFULL=inside exec unshare --mount --propagation private /bin/sh "$0" "$@"
fi

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -gt 0 ] || (cd "$root" && cargo build --quiet)
program=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/debug/spotkeeper}")
work=$(mktemp -d)
emulator='' daemon=''
finish() {
    status=$?
    trap - EXIT INT TERM
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    [ -z "$emulator" ] || kill "$emulator" 2>/dev/null || :
    wait
    if [ $status != 0 ]; then
        echo "diskfull: the daemon said:" >&2
        cat "$work/daemon.log" >&2 || :
    fi
    umount "$work/small" 2>/dev/null || :
    rm -rf "$work"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() { echo "diskfull: $*" >&2; exit 1; }
# The number of ledger lines of one kind.
count() { grep -c "\"event\":\"$1\"" "$work/cloud/ledger.jsonl" || :; }
# until_true WHAT COMMAND...: waits for a command to succeed.
until_true() {
    what=$1 tries=600
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "waited in vain until $what"
        sleep 0.1
    done
}
created() { [ "$(count create)" -ge "$1" ]; }
trained() { grep -q "\"event\":\"$1\"" "$work/trainer.jsonl" 2>/dev/null; }
logged() { grep -q "$1" "$work/daemon.log"; }
free_kib() { df --output=avail "$work/small" | tail -1 | tr -d ' '; }

mkdir "$work/cloud" "$work/jobs.d" "$work/bucket" "$work/small"
mount -t tmpfs -o size=4m,mode=700 tmpfs "$work/small"

"$program" emulator --allow-root --acceptance 3s --access-key id:secret --dir "$work/cloud" \
    >"$work/emulator.out" 2>"$work/emulator.log" &
emulator=$!
until_true "the emulator listens" grep -q '^listening on' "$work/emulator.out"
url=$(sed -n 's/^listening on //p' "$work/emulator.out")

cat >"$work/spotkeeper.toml" <<END
owner = "dskful"
state_directory = "small/state"
jobs_directory = "jobs.d"
[sweep]
interval = "200ms"
[api]
socket = "api.sock"
[targets.here]
region = "cn-hangzhou"
workspace = "1"
endpoint = "$url"
credentials = { environment = true }
acceptance = "3s"
END
cat >"$work/jobs.d/train.toml" <<END
target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = """
$program demo-trainer --save $work/bucket --steps 150 --save-every 5 --step-time 40 \
  --write-pause 5 --log $work/trainer.jsonl {resume}
"""
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
[checkpoint]
url = "file://$work/bucket"
format = "easyckpt-megatron"
resume = "--load {root} --ckpt-step {step}"
ranks = 2
settle = "400ms"
settle_interval = "200ms"
[progress]
total_steps = 150
END

ALIBABA_CLOUD_ACCESS_KEY_ID=id ALIBABA_CLOUD_ACCESS_KEY_SECRET=secret \
    "$program" run --config "$work/spotkeeper.toml" 2>"$work/daemon.log" &
daemon=$!
until_true "the job is created" created 1
until_true "a checkpoint is saved" trained saved

# Fill the disk to the last byte, then take the machine away.
dd if=/dev/zero of="$work/small/filler" bs=1k 2>/dev/null || :
[ "$(free_kib)" = 0 ] || fail "the disk is not full: $(free_kib) KiB are free"
id=$(sed -n 's/.*"event":"create","job_id":"\([^"]*\)".*/\1/p' "$work/cloud/ledger.jsonl")
curl -sSf -X POST "$url/emulator/release/$id" >/dev/null
until_true "the store cannot write" logged 'the store cannot write'
until_true "the attempt has ended" grep -q '"event":"end"' "$work/cloud/ledger.jsonl"
sleep 8
[ "$(free_kib)" = 0 ] || fail "the disk did not stay full"
[ "$(count create)" = 1 ] || fail "a job was created while the store could not write"
kill -0 "$daemon" || fail "the daemon ended"

rm "$work/small/filler"
until_true "the job is created again" created 2
until_true "the job is done" trained done
sleep 2
[ "$(count create)" = 2 ] || fail "$(count create) jobs were created, not 2"
[ "$(count stop_asked)" = 0 ] || fail "a job was stopped"
echo "diskfull: no job while the disk was full, one after it: well"
