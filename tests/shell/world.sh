# What the scripts share that put the real program under attack: one emulator, one daemon at a time,
# job files, and the judge. Sourced by a script that has set `name`, its own one, and `root`, the
# folder of the project. Everything of a world is in $work and goes with the (sub)shell that made it.

fail() { echo "$name: $*" >&2; exit 1; }

# Sets $program: the first argument, else the debug build, which is made if nothing was named.
find_program() {
    [ $# -gt 0 ] || (cd "$root" && cargo build --quiet)
    program=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/debug/spotkeeper}")
}

# A world of its own for this (sub)shell.
begin_world() {
    work=$(mktemp -d) emulator='' daemon=''
    mkdir "$work/cloud" "$work/jobs.d"
    trap end_world EXIT
    trap 'exit 130' INT TERM
}

end_world() {
    status=$?
    trap - EXIT INT TERM
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    # TERM: it takes the processes of its pods with it.
    [ -z "$emulator" ] || kill "$emulator" 2>/dev/null || :
    wait
    if [ $status != 0 ]; then
        echo "$name: the daemon said:" >&2
        tail -n 100 "$work/daemon.log" >&2 || :
        echo "$name: the ledger says:" >&2
        grep -v '"event":"status"' "$work/cloud/ledger.jsonl" >&2 || :
    fi
    # What else the script began in the world; it may define this.
    if command -v end_more >/dev/null; then end_more; fi
    rm -rf "$work"
    exit $status
}

# Starts the emulator; sets $url.
begin_emulator() {
    : >"$work/emulator.out"
    "$program" emulator --allow-root --acceptance 3s --access-key id:secret --dir "$work/cloud" \
        >"$work/emulator.out" 2>"$work/emulator.log" &
    emulator=$!
    until_true "the emulator listens" grep -q '^listening on' "$work/emulator.out"
    url=$(sed -n 's/^listening on //p' "$work/emulator.out")
}

# daemon_file STATE: writes the daemon file. STATE: the state folder, below $work.
daemon_file() {
    cat >"$work/spotkeeper.toml" <<END
owner = "attack"
state_directory = "$1"
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
}

# job_file JOB STEPS: a job of the demo's trainer, which saves each 5 steps of 40 ms.
job_file() {
    mkdir -p "$work/bucket/$1"
    cat >"$work/.job" <<END
target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = """
$program demo-trainer --save $work/bucket/$1 --steps $2 --save-every 5 --step-time 40 \
  --write-pause 5 --log $work/$1.jsonl {resume}
"""
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
[checkpoint]
url = "file://$work/bucket/$1"
format = "easyckpt-megatron"
resume = "--load {root} --ckpt-step {step}"
ranks = 2
settle = "400ms"
settle_interval = "200ms"
[progress]
total_steps = $2
END
    mv "$work/.job" "$work/jobs.d/$1.toml"
}

# begin_daemon [WORD...]: starts the daemon. WORDS: a command, no function, that becomes it.
begin_daemon() {
    ALIBABA_CLOUD_ACCESS_KEY_ID=id ALIBABA_CLOUD_ACCESS_KEY_SECRET=secret \
        "$@" "$program" run --config "$work/spotkeeper.toml" 2>>"$work/daemon.log" &
    daemon=$!
}

kill_daemon() {
    kill -9 "$daemon"
    wait "$daemon" 2>/dev/null || :
    daemon=''
}

# until_true WHAT COMMAND...: waits for a command to succeed, for $patience seconds.
patience=90
until_true() {
    what=$1 tries=$((patience * 10))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "waited in vain until $what"
        sleep 0.1
    done
}

# The number of ledger lines of one kind.
count() { grep -c "\"event\":\"$1\"" "$work/cloud/ledger.jsonl" || :; }
# creates_of JOB: how often it was created.
creates_of() { grep '"event":"create"' "$work/cloud/ledger.jsonl" | grep -c "\"$1\.sk" || :; }
created() { [ "$(creates_of "$1")" -ge "$2" ]; }
# Whether the trainer of JOB noted EVENT; newly: since it started last.
trained() { grep -q "\"event\":\"$2\"" "$work/$1.jsonl" 2>/dev/null; }
newly() { tac "$work/$1.jsonl" 2>/dev/null | sed '/"event":"start"/q' | grep -q "\"event\":\"$2\""; }
logged() { grep -q "$1" "$work/daemon.log"; }
# release JOB: takes the machine of its last attempt back.
release() {
    id=$(grep '"event":"create"' "$work/cloud/ledger.jsonl" | grep "\"$1\.sk" | tail -n 1 |
        sed -n 's/.*"job_id":"\([^"]*\)".*/\1/p')
    curl -sSf --interface 127.0.0.9 -X POST "$url/emulator/release/$id" >/dev/null
}
ended() { [ "$(count end)" -ge "$1" ]; }
ask() { "$program" "$@" --config "$work/spotkeeper.toml"; }

# judge JOB:STEPS:CREATES...: what the ledger and the trainers' own logs say in the end.
judge() { python3 "$root/tests/shell/judge.py" "$work" "$@" || fail "the judge says no"; }
