#!/usr/bin/env bash
# Runs inside a booted Debian: what a clumsy operator and another user of the machine can do to an
# installed spotkeeper. It has to say what is wrong, come back by itself once that is mended, and
# never submit its one job again.
. /opt/t/lib.sh

state=/var/lib/spotkeeper
# What this start of the unit has written.
told() { journal "_SYSTEMD_INVOCATION_ID=$(show InvocationID)" | grep -F -- "$1" >/dev/null; }
main() { show MainPID; }
active() { [ "$(show ActiveState) $(show SubState)" = "active running" ]; }
# Fails to start with this exit code and says so.
refuses() { # WHAT CODE TEXT
  systemctl stop $unit
  systemctl reset-failed $unit 2>/dev/null || true
  if systemctl start $unit 2>/dev/null; then fail "$1: it starts"; fi
  [ "$(show ExecMainStatus)" = "$2" ] || fail "$1: exit $(show ExecMainStatus)"
  until_ok "$1: its words" told "$3"
}
# Mended: it comes back, by itself or when it is started, and the job is still one.
recovers() { # WHAT [itself]
  [ "${2:-}" = itself ] || systemctl start $unit
  until_ok "$1: it comes back" active
  until_ok "$1: the job" fresh_running
  one_job "$1"
}

install_package
set_up
# A disk of its own, which can be made read only.
mkdir -p $state
mount -t tmpfs -o mode=700 tmpfs $state
chown spotkeeper: $state
emulator
systemctl start $unit
until_ok "the job runs" fresh_running
one_job "at first"

# Owners and modes of what it reads.
chmod 666 /etc/spotkeeper/spotkeeper.toml
before=$(main)
systemctl reload $unit
until_ok "the refusal" told E082
{ active && [ "$(main)" = "$before" ] && running; } || fail "a daemon file with mode 666 ends it"
refuses "a daemon file with mode 666" 5 E082
chmod 600 /etc/spotkeeper/spotkeeper.toml
refuses "a daemon file that it cannot read" 5 'Permission denied'
chmod 644 /etc/spotkeeper/spotkeeper.toml
recovers "the daemon file is mended"
for mode in 777 700; do
  chmod $mode /etc/spotkeeper/jobs.d
  systemctl restart $unit
  until_ok "the job with a jobs folder of mode $mode" fresh_running
  until_ok "words about the jobs folder of mode $mode" told /etc/spotkeeper/jobs.d
  one_job "with a jobs folder of mode $mode"
done
chmod 755 /etc/spotkeeper/jobs.d
ok "wrong modes: told, exit 5 for the daemon file alone; the job goes on"

# Something stands where the socket should be.
config info '[api]
socket = "/var/lib/spotkeeper/here/api.sock"'
install -d -o spotkeeper $state/here $state/here/api.sock
refuses "a folder in the socket's place" 1 "api.sock"
rmdir $state/here/api.sock
recovers "the socket's place is free" itself
config info
systemctl restart $unit
recovers "the socket is where it was"
ok "an occupied socket: exit 1 in words, comes back by itself"

# The state on a disk that is read only.
systemctl stop $unit
mount -o remount,ro $state
refuses "a state that is read only" 1 'ead-only'
mount -o remount,rw $state
recovers "the state can be written" itself
ok "a read-only state: exit 1 in words, comes back by itself"

# No keys.
mv /etc/credstore/spotkeeper-keys /root/keys
systemctl restart $unit
active || fail "without keys it does not start"
until_ok "words about the keys" told spotkeeper-keys
spotkeeper ps -o name | grep -x steady >/dev/null || fail "without keys the job is not shown"
one_job "without keys"
mv /root/keys /etc/credstore/spotkeeper-keys
systemctl restart $unit
recovers "the keys are back"
ok "no credential: active, says so, takes up work when it is back"

# Drop-ins.
drop_in() { # LINES
  mkdir -p /etc/systemd/system/$unit.d
  printf '[Service]\n%s\n' "$1" > /etc/systemd/system/$unit.d/mine.conf
  systemctl daemon-reload
  systemctl restart $unit
}
no_drop_in() {
  rm -r /etc/systemd/system/$unit.d
  systemctl daemon-reload
  systemctl restart $unit
}
drop_in 'WatchdogSec=0
Type=simple
NotifyAccess=none'
recovers "no notifications"
drop_in 'StateDirectory=elsewhere'
recovers "another state folder: the job is found in the cloud"
drop_in 'User=root
Group=root'
recovers "as root"
no_drop_in
recovers "without drop-ins"
[ -z "$(find $state ! -user spotkeeper)" ] || fail "files of root are left in the state"
ok "drop-ins: no notifications, another state folder, another user: one job"

# A journal that takes nothing, and a daemon that has much to say.
config trace
systemctl reload $unit
until_ok "the level" told RELOADED
systemctl kill --kill-whom=main -s STOP systemd-journald
sed 's/3600/3601/' /etc/spotkeeper/jobs.d/steady.toml > /etc/spotkeeper/jobs.d/second.toml
jobs=2
all_created() { [ "$(count create)" = $jobs ]; }
until_ok "a job while the journal takes nothing" all_created
for _ in $(seq 20); do spotkeeper ps -o name >/dev/null || fail "it does not answer"; sleep 0.5; done
systemctl kill --kill-whom=main -s CONT systemd-journald
config info
systemctl restart $unit
recovers "the journal is back"
ok "a journal that stands still stops nobody"

# By hand, as root.
systemctl stop $unit
if spotkeeper run >/tmp/byhand 2>&1; then fail "root runs on the state of another user"; fi
grep -F 'belongs to the user' /tmp/byhand >/dev/null || { cat /tmp/byhand; fail "root is not told"; }
spotkeeper resume steady >/dev/null || fail "root cannot write an act down"
[ -z "$(find $state ! -user spotkeeper)" ] || fail "root leaves files that the daemon cannot open"
# The daemon's user lays a trap for root.
before=$(stat -c '%U %a %s' /etc/shadow)
for name in lock asked; do
  mv $state/$name /root/aside
  ln -s /etc/shadow $state/$name
  if spotkeeper resume steady >/dev/null 2>&1; then fail "root follows a link: $name"; fi
  [ "$(stat -c '%U %a %s' /etc/shadow)" = "$before" ] || fail "root was led to /etc/shadow: $name"
  rm $state/$name
  mv /root/aside $state/$name
done
recovers "after acts by hand"
ok "root by hand: refused or harmless, and no link leads it elsewhere"

# Another user of the machine.
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }
if as_nobody spotkeeper ps >/dev/null 2>&1; then fail "anybody may use the socket"; fi
if as_nobody ls $state >/dev/null 2>&1; then fail "anybody may look into the state"; fi
for file in /etc/credstore/spotkeeper-keys /etc/spotkeeper/environment /etc/spotkeeper/secrets/.; do
  if as_nobody cat $file >/dev/null 2>&1 || as_nobody ls -A $file/ >/dev/null 2>&1; then
    fail "anybody may read $file"
  fi
done
ok "another user: no socket, no state, no keys"

# An upgrade whose program would not take the daemon file.
config info 'no_such_key = 1'
before=$(main)
install_package
grep -F 'runs on' /tmp/dpkg.log >/dev/null || { cat /tmp/dpkg.log; fail "the upgrade does not tell"; }
{ active && [ "$(main)" = "$before" ] && running; } || fail "an upgrade ends a daemon that works"
config info
# An older package, then this one again.
dpkg-deb -R /opt/t/spotkeeper.deb /tmp/older
sed -i 's/^Version: .*/Version: 0.0.1~/' /tmp/older/DEBIAN/control
dpkg-deb -Znone -b /tmp/older /tmp/older.deb >/dev/null
for deb in /tmp/older.deb /opt/t/spotkeeper.deb; do
  before=$(main)
  dpkg -i $deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg -i $deb"; }
  [ "$(main)" != "$before" ] || fail "$deb restarts nothing"
  recovers "after $deb"
done
# The state of a newer program.
systemctl stop $unit
cp -p $state/store.version /root/marker
sed -i 's/"format":[0-9]*/"format":99/' $state/store.version
chown spotkeeper: $state/store.version
refuses "a state of a newer program" 1 'newer program'
grep -F '"format":99' $state/store.version >/dev/null || fail "it changed what it refused"
systemctl stop $unit
cp -p /root/marker $state/store.version
recovers "the newer program is back"
ok "packages back and forth: one job; a newer state is refused in words"

# Removed and installed again; purged and installed again.
dpkg -r spotkeeper >/dev/null 2>&1
install_package
recovers "removed and installed again" itself
systemctl stop $unit
umount $state
dpkg -P spotkeeper >/dev/null 2>&1
install_package
grep -q 'spotkeeper init' /tmp/dpkg.log || fail "after a purge it is not as if it were new"
[ -z "$(ls -A /etc/spotkeeper/jobs.d)" ] || fail "a purge leaves job files"
spotkeeper init >/dev/null
systemctl start $unit
active || fail "after a purge it does not start"
dpkg -P spotkeeper >/dev/null 2>&1
one_job "after all"
ok "removed, purged, installed again"
