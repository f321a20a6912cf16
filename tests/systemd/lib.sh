# What the scripts share that run inside a booted Debian.
set -Eeuo pipefail
export LC_ALL=C.UTF-8 SYSTEMD_PAGER= SYSTEMD_COLORS=0
unit=spotkeeper.service
port=18471
ledger=/var/lib/emulator/ledger.jsonl

trap 'echo "  failed in line $LINENO: $BASH_COMMAND"' ERR
trap 'code=$?; if [ $code != 0 ]; then
  systemctl status --no-pager -n 0 $unit || true
  journalctl -b -u $unit -u emulator --no-pager -n 60 || true
  tail -n 20 $ledger 2>/dev/null || true
fi; exit $code' EXIT

ok() { printf '  ok  %s\n' "$*"; }
fail() { echo "  NO  $*"; exit 1; }
show() { systemctl show --value -p "$1" $unit; }
# Waits until a command succeeds. No time is judged: only that it comes at all.
until_ok() {
  local what=$1
  shift
  for _ in $(seq 450); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "$what: never came"
}
journal() { journalctl -b -q --no-pager -o cat "$@"; }
said() { journal -n 1 "$@" | grep . >/dev/null; }
count() { grep -c "\"event\":\"$1\"" $ledger || true; }
running() { spotkeeper ps -o json | tr -d ' \n' | grep '"phase":"RUNNING"' >/dev/null; }
# Seen by a complete look of this very process.
fresh_running() { running && spotkeeper ps -o json | grep '"last_look_s": [0-9]' >/dev/null; }
emulator() {
  systemctl reset-failed emulator 2>/dev/null || true
  systemd-run -q --unit=emulator --uid=emulator -p KillMode=process \
    /usr/bin/spotkeeper emulator --listen 127.0.0.1:$port --access-key test-key:test-secret \
    --acceptance 3s --dir /var/lib/emulator
  until_ok "the emulator" journal -u emulator -g 'listening on'
  until_ok "its port" bash -c "exec 3<>/dev/tcp/127.0.0.1/$port"
}
config() { # LEVEL [MORE]
  cat > /etc/spotkeeper/spotkeeper.toml <<TOML
owner = "$owner"
[sweep]
interval = "500ms"
[log]
level = "$1"
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "http://127.0.0.1:$port"
credentials = { systemd = "spotkeeper-keys" }
acceptance = "3s"
${2:-}
TOML
}
# What was ever created is what there are job files, and nothing was stopped.
jobs=1
one_job() {
  [ "$(count create)" = $jobs ] || fail "$1: $(count create) jobs were created"
  [ "$(count stop_asked)" = 0 ] || fail "$1: a stop was asked for"
}
install_package() {
  dpkg -i /opt/t/spotkeeper.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg -i"; }
}
# An owner, keys, one job that runs for an hour, and a user for the emulator.
set_up() {
  spotkeeper init >/dev/null
  owner=$(sed -n 's/^owner = "\(.*\)"/\1/p' /etc/spotkeeper/spotkeeper.toml)
  echo 'u emulator - "stand-in of the cloud" /var/lib/emulator' | systemd-sysusers - 2>/dev/null
  install -d -o emulator -m 700 /var/lib/emulator
  install -d -m 700 /etc/credstore
  (umask 077; printf 'access_key_id = "test-key"\naccess_key_secret = "test-secret"\n' > /etc/credstore/spotkeeper-keys)
  cat > /etc/spotkeeper/jobs.d/steady.toml <<'TOML'
target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = "sleep 3600"
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.9
TOML
  config info
}

systemctl is-system-running --wait >/dev/null || true
