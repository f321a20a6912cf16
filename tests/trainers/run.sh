#!/bin/sh
# Hugging Face's Trainer and Lightning's, the real ones, on the CPU: each trains a small model as a
# spot job of the daemon in the emulator, is released at random moments, and has to end where an
# undisturbed run ends, without doing again what was saved. judge.py reads the emulator's ledger,
# the trainer's files and its diary.
#
# Run by hand: it installs PyTorch (some GB). Needs python3 with venv, PyPI, and a host that lets us
# mount. Usage: [SEED=1] [VENV=folder] tests/trainers/run.sh [path of the spotkeeper binary]
set -eu

STEPS=150
SAVE_EVERY=10
PAUSE=0.2
# Saves after which a release comes. It hits nothing if the job is not running then.
HITS=9
# Minutes until a job has to be done.
PATIENCE=20

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
seed=${SEED:-1}
if [ $# -ge 1 ]; then
  spotkeeper=$1
else
  cargo build --manifest-path "$root/Cargo.toml"
  spotkeeper=$target/debug/spotkeeper
fi

venv=${VENV:-$target/trainers-venv}
packages="torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 lightning==2.6.6"
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$packages" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086 # a list of words
  "$venv/bin/pip" install --quiet --disable-pip-version-check $packages
  echo "$packages" >"$venv/installed"
fi
python=$venv/bin/python

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
  if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap cleanup EXIT
trap 'exit 1' INT TERM

export ALIBABA_CLOUD_ACCESS_KEY_ID=testid ALIBABA_CLOUD_ACCESS_KEY_SECRET=testsecret
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

# trainer NAME PATTERN SEED DIALECT: one emulator, one daemon, one job.
trainer() {
  name=$1
  place=$work/$name
  mkdir -p "$place/calm/out" "$place/run/out" "$place/jobs.d"
  "$python" "$here/${name}_trainer.py" --output_dir "$place/calm/out" --steps $STEPS \
    --save_every $SAVE_EVERY >"$place/calm/log" 2>&1 || { tail -n 40 "$place/calm/log" >&2; exit 1; }
  python3 "$here/market.py" "$3" "run/out/$2" $STEPS $SAVE_EVERY \
    "$(python3 -c "print($SAVE_EVERY * $PAUSE)")" $HITS >"$place/market.jsonl"

  "$spotkeeper" emulator --listen 127.0.0.1:0 --access-key testid:testsecret --allow-root \
    --dir "$place/emulator" --market "script:$place/market.jsonl" --dialect "$4" --grace 1s \
    --acceptance 3s >"$place/stdout" 2>"$place/stderr" &
  emulator=$!
  tries=0
  until grep -qs '^listening on ' "$place/stdout"; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 "$emulator" 2>/dev/null; then
      cat "$place/stdout" "$place/stderr" >&2
      exit 1
    fi
    sleep 0.1
  done

  cat >"$place/spotkeeper.toml" <<END
owner = "trainr"
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "500ms"
[api]
socket = "api.sock"
[targets.hangzhou]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "$(sed -n '1s/^listening on //p' "$place/stdout")"
credentials = { environment = true }
acceptance = "3s"
END
  cat >"$place/jobs.d/$name.toml" <<END
name = "$name"
target = "hangzhou"
[submit]
JobType = "PyTorchJob"
UserCommand = "$python $here/${name}_trainer.py --output_dir /mnt/ckpt/out --steps $STEPS --save_every $SAVE_EVERY --pause $PAUSE {resume}"
[[submit.JobSpecs]]
Type = "Worker"
Image = "none: the emulator runs the command on this machine"
PodCount = 1
EcsSpec = "ecs.g7.xlarge"
[[submit.DataSources]]
Uri = "file://$place/run/"
MountPath = "/mnt/ckpt"
[spot]
discount_limit = 0.4
[checkpoint]
path = "/mnt/ckpt/out"
settle = "2s"
settle_interval = "1s"
[progress]
total_steps = $STEPS
END
  "$spotkeeper" check --config "$place/spotkeeper.toml"
  "$spotkeeper" run --config "$place/spotkeeper.toml" >"$place/log" 2>&1 &
  daemon=$!
  tries=0
  until [ -S "$place/api.sock" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 "$daemon" 2>/dev/null; then
      tail -n 20 "$place/log" >&2
      exit 1
    fi
    sleep 0.1
  done
  "$spotkeeper" wait --config "$place/spotkeeper.toml" --timeout "${PATIENCE}m" "$name" || {
    "$spotkeeper" why --config "$place/spotkeeper.toml" "$name" >&2 || true
    "$spotkeeper" events --config "$place/spotkeeper.toml" "$name" >&2 || true
    tail -n 20 "$place/log" >&2
    exit 1
  }
  end "$daemon"
  daemon=
  end "$emulator"
  emulator=
  result=$("$python" "$here/judge.py" "$name" "$name" "$place/emulator/ledger.jsonl" \
    "$place/run" "$place/calm")
  results="$results$result
"
}

results=
trainer hf "checkpoint-{step}" "$seed" plain
trainer lightning "epoch=*-step={step}.ckpt" "$((seed + 1))" exit-143
printf '%s' "$results"
