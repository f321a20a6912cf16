#!/usr/bin/env bash
# Runs inside a booted Debian: installs the package and shows what the unit promises. The emulator's
# ledger alone says what was submitted and stopped.
. /opt/t/lib.sh

echo "  $(systemctl --version | head -1), $(. /etc/os-release; echo "$PRETTY_NAME")"

# Install.
find / -xdev -path /opt/t -prune -o -path /proc -prune -o -print | sort > /tmp/before
install_package
grep -q 'spotkeeper init' /tmp/dpkg.log || fail "the package does not say what comes next"
systemctl is-enabled -q $unit || fail "it does not start with the machine"
getent passwd spotkeeper >/dev/null || fail "there is no user"
[ "$(stat -c '%a %G' /etc/spotkeeper/secrets)" = "750 spotkeeper" ] || fail "mode of the secrets"
ok "installed: user, folders, enabled, $(spotkeeper --version)"

systemd-analyze verify --recursive-errors=no $unit 2>/tmp/verify || { cat /tmp/verify; fail verify; }
[ ! -s /tmp/verify ] || { cat /tmp/verify; fail "verify is not clean"; }
systemd-analyze security --offline=yes --threshold=15 --no-pager \
  /usr/lib/systemd/system/$unit >/tmp/security || { tail -1 /tmp/security; fail "too exposed"; }
ok "verify clean; $(tail -1 /tmp/security | tr -cd 'A-Za-z0-9:. -')"

# A daemon file that is not there, then one that is not valid: exit 5, and no second try.
systemctl start $unit 2>/dev/null && fail "it starts without a daemon file"
[ "$(show ExecMainStatus) $(show NRestarts) $(show ActiveState)" = "5 0 failed" ] ||
  fail "without a daemon file: $(show ExecMainStatus) $(show NRestarts) $(show ActiveState)"
ok "a daemon file that is missing: exit 5, not started again"

set_up

# The API is down at boot: the unit is active, and takes up work when it is there.
systemctl start $unit
[ "$(show ActiveState) $(show SubState)" = "active running" ] || fail "it did not start"
spotkeeper ps -o name >/dev/null || fail "start did not wait for READY: the socket does not answer"
pid=$(show MainPID)
[ "$(stat -c %U "/proc/$pid")" = spotkeeper ] || fail "it runs as $(stat -c %U "/proc/$pid")"
[ "$(stat -c '%a %U' /var/lib/spotkeeper)" = "700 spotkeeper" ] || fail "mode of the state"
[ "$(stat -c '%a %G' /run/spotkeeper)" = "750 spotkeeper" ] || fail "mode of the socket's folder"
for key in NoNewPrivs:.1 CapEff:.0000000000000000 Seccomp:.2; do
  grep -q "^$key$" "/proc/$pid/status" || fail "$key does not hold"
done
until_ok "the job on record" bash -c 'spotkeeper ps -o name | grep -qx steady'
until_ok "a status that names the target" bash -c "systemctl show -p StatusText $unit | grep -q here"
ok "API down: active, uid spotkeeper, $(show StatusText | cut -c1-70)"
emulator
until_ok "the job runs" running
one_job "after the API was back"
ok "the API is back: the job runs"

# Completion knows the job.
completed=$(
  source /usr/share/bash-completion/completions/spotkeeper
  COMP_WORDS=(spotkeeper describe st) COMP_CWORD=2
  _spotkeeper
  echo "${COMPREPLY[*]}"
)
[ "$completed" = steady ] || fail "completed to '$completed'"

# The journal's fields.
until_ok "an event with its fields" said JOB=steady EVENT=INTENT ATTEMPT=1 PRIORITY=6
journalctl -b -q -o json JOB=steady EVENT=SUBMITTED | grep '"SYSLOG_IDENTIFIER":"spotkeeper"' >/dev/null ||
  fail "fields of the journal"
! journal -u $unit | grep 'test-secret' >/dev/null || fail "a secret stands in the journal"
ok "journalctl JOB=steady EVENT=INTENT"

# The state outlives a restart.
systemctl restart $unit
until_ok "the job after a restart" fresh_running
one_job "after a restart"
ok "restart: the state is there, one job"

# Reload, good and bad.
pid=$(show MainPID)
config debug '[targets.there]
region = "cn-beijing"
workspace = "1"
endpoint = "http://127.0.0.1:9"'
systemctl reload $unit
until_ok "the reload" said EVENT=RELOADED
until_ok "the new target" bash -c "systemctl show -p StatusText $unit | grep -q there"
until_ok "the new level" said -u $unit PRIORITY=7
echo 'owner = ' > /etc/spotkeeper/spotkeeper.toml
systemctl reload $unit
until_ok "the refusal" said EVENT=RELOADED PRIORITY=3
[ "$(show ActiveState) $(show MainPID)" = "active $pid" ] || fail "a bad file ended it"
until_ok "a status that says so" bash -c "systemctl show -p StatusText $unit | grep -q 'refused.*there'"
config info
systemctl reload $unit
until_ok "the target to be gone" bash -c "! systemctl show -p StatusText $unit | grep -q there"
running || fail "the job after reloads"
one_job "after reloads"
ok "reload: a good file is taken, a bad one refused, same process"

systemctl kill --kill-whom=main -s USR1 $unit
until_ok "the dump" said JOB=steady -g 'state of a job'
ok "USR1: the state stands in the journal"

# Another instance.
code=0
systemd-run -q --wait --pipe --uid=spotkeeper /usr/bin/spotkeeper run 2>/tmp/second || code=$?
[ $code = 8 ] || { cat /tmp/second; fail "a second instance ended with $code"; }
[ "$(show ActiveState) $(show MainPID)" = "active $pid" ] || fail "the first one was disturbed"
spotkeeper ps -o name | grep -x steady >/dev/null || fail "the first one does not answer"
ok "a second instance: exit 8, the first goes on"

# kill -9.
kill -KILL "$pid"
until_ok "another process" bash -c "[ \$(systemctl show --value -p MainPID $unit) != 0 ] && [ \$(systemctl show --value -p MainPID $unit) != $pid ]"
until_ok "the job after kill -9" fresh_running
one_job "after kill -9"
ok "kill -9: started again, the job was found, one job"

# The watchdog, with the program that has the hook.
mkdir -p /run/systemd/system/$unit.d
cat > /run/systemd/system/$unit.d/frozen.conf <<'CONF'
[Service]
ExecStart=
ExecStart=/opt/t/spotkeeper-debug run
Environment=SPOTKEEPER_FREEZE=/run/spotkeeper/freeze
WatchdogSec=5s
RestartSec=1s
CONF
systemctl daemon-reload
systemctl restart $unit
until_ok "the job under the watchdog" fresh_running
# It is fed while it works: it lives for longer than the watchdog waits.
pid=$(show MainPID)
sleep 7
[ "$(show MainPID)" = "$pid" ] || fail "the watchdog kills a daemon that works"
touch /run/spotkeeper/freeze
until_ok "the watchdog" said -u $unit -g 'Watchdog timeout'
until_ok "another process" bash -c "[ \$(systemctl show --value -p MainPID $unit) != 0 ] && [ \$(systemctl show --value -p MainPID $unit) != $pid ]"
until_ok "the job after the watchdog" fresh_running
one_job "after the watchdog"
ok "frozen driver: killed by the watchdog, started again, one job"
rm /run/systemd/system/$unit.d/frozen.conf

# Three starts that come to nothing: the next one holds, and a person ends that.
systemctl kill --kill-whom=main -s STOP emulator
cat > /run/systemd/system/$unit.d/soon.conf <<'CONF'
[Service]
RestartSec=200ms
CONF
systemctl daemon-reload
systemctl restart $unit
for _ in 1 2 3; do
  pid=$(show MainPID)
  kill -KILL "$pid"
  until_ok "another process" bash -c "p=\$(systemctl show --value -p MainPID $unit); [ \$p != 0 ] && [ \$p != $pid ] && [ \$(systemctl show --value -p ActiveState $unit) = active ]"
done
until_ok "the hold" bash -c "systemctl show -p StatusText $unit | grep -q HELD"
spotkeeper why steady | grep 'came to nothing\|ended before anything' >/dev/null || fail "why does not tell of the hold"
said -u $unit EVENT=ALARM || fail "the hold is no alarm"
systemctl restart $unit
systemctl kill --kill-whom=main -s CONT emulator
until_ok "the job after the hold" fresh_running
one_job "after the hold"
! show StatusText | grep HELD >/dev/null || fail "it still holds"
rm -r /run/systemd/system/$unit.d
systemctl daemon-reload
ok "three starts without a result: the fourth holds; a restart ends that"

# Upgrade, stop.
install_package
until_ok "the job after an upgrade" fresh_running
begin=$SECONDS
systemctl stop $unit
[ $((SECONDS - begin)) -le 10 ] || fail "stop took $((SECONDS - begin)) s"
[ "$(show Result) $(show ExecMainStatus)" = "success 0" ] || fail "stop: $(show Result) $(show ExecMainStatus)"
one_job "after an upgrade and a stop"
ok "upgrade: nothing submitted; stop in $((SECONDS - begin)) s, no job stopped"

# Remove keeps, purge leaves nothing.
systemctl kill --kill-whom=all -s KILL emulator 2>/dev/null || true
systemctl start $unit
dpkg -r spotkeeper >/dev/null 2>&1
[ "$(show ActiveState)" != active ] || fail "it runs on after remove"
[ -s /etc/spotkeeper/spotkeeper.toml ] && [ -d /var/lib/spotkeeper ] || fail "remove loses state"
dpkg -P spotkeeper >/dev/null 2>&1
find / -xdev -path /opt/t -prune -o -path /proc -prune -o -print | sort > /tmp/after
litter=$(comm -13 /tmp/before /tmp/after | grep -i spotkeeper | grep -v '^/var/lib/dpkg\|^/var/log\|^/var/cache' || true)
[ -z "$litter" ] || fail "purge leaves: $litter"
! getent passwd spotkeeper >/dev/null || fail "purge leaves the user"
! getent group spotkeeper >/dev/null || fail "purge leaves the group"
ok "remove keeps the state, purge leaves nothing"
