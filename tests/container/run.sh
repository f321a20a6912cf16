#!/bin/sh
# The daemon as a container runs it: process 1 of its name space, a root that is read only but for one
# volume, a uid that nobody has named, no HOME, no machine-id, no service manager. It takes a job
# through a release to its end and stops at TERM. Wants root: what is mounted is mounted in a name
# space of its own, which goes when this script ends.
#
# usage: run.sh [PROGRAM]      PROGRAM: spotkeeper, target/debug/spotkeeper by default
set -eu

name=container
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/shell/world.sh"
[ "$(id -u)" = 0 ] || fail "wants root"
find_program "$@"

uid=12345
if getent passwd $uid >/dev/null; then fail "uid $uid has a name here"; fi

begin_world
# Readable by that uid, writable for it only in the volume.
chmod 755 "$work"
umask 022
mkdir "$work/volume"
chown $uid:$uid "$work/volume"
cp "$program" "$work/spotkeeper"
begin_emulator
daemon_file volume/state
sed -i 's/^socket = .*/socket = "volume\/api.sock"/' "$work/spotkeeper.toml"
job_file train 60

# What becomes the daemon: the name spaces, then the user.
cat >"$work/contain" <<'END'
#!/bin/sh
set -eu
work=$1
shift
# The volume is a mount of its own, which stays writable when the one below it no longer is.
below=$(stat -c %m "$work")
mount --bind "$work/volume" "$work/volume"
[ ! -e /etc/machine-id ] || mount --bind /dev/null /etc/machine-id
for place in / "$below"; do
    mount -o remount,bind,ro "$place"
done
exec env -i PATH="$PATH" \
    ALIBABA_CLOUD_ACCESS_KEY_ID=id ALIBABA_CLOUD_ACCESS_KEY_SECRET=secret \
    setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs \
    --bounding-set -all --inh-caps -all "$@"
END
begin_contained() {
    unshare --mount --pid --fork --mount-proc --kill-child --propagation private \
        /bin/sh "$work/contain" "$work" "$work/spotkeeper" run --config "$work/spotkeeper.toml" \
        2>>"$work/daemon.log" &
    daemon=$!
}
# The daemon itself: the child of unshare.
inner() { cat "/proc/$daemon/task/$daemon/children"; }

begin_contained
until_true "a checkpoint is saved" trained train saved
pid=$(inner)
pid=${pid% }
grep -q "^Uid:.$uid" "/proc/$pid/status" || fail "it does not run as $uid"
grep -q "^CapEff:.0*$" "/proc/$pid/status" || fail "it has capabilities"
grep -q "^NSpid:.*[[:space:]]1$" "/proc/$pid/status" || fail "it is not process 1"
[ "$(stat -c '%a %u' "$work/volume/state")" = "700 $uid" ] || fail "the state is not private"
if nsenter --mount --target "$pid" touch "$work/outside" 2>/dev/null; then
    fail "its root can be written"
fi
release train
until_true "the job is done" trained train done
until_true "its last attempt has ended" ended 2

# Stopped by one signal, as a container is; started again it has its state.
kill -TERM "$pid"
wait "$daemon" || fail "it did not end well at TERM"
begin_contained
shown() { "$program" ps -o name --socket "$work/volume/api.sock" 2>/dev/null | grep -q '^train'; }
until_true "it shows its job" shown
pid=$(inner)
kill -TERM "${pid% }"
wait "$daemon" || fail "it did not end well at TERM"
daemon=''
judge train:60:2
if grep -iq 'notify\|panicked' "$work/daemon.log"; then fail "it misses a service manager"; fi
echo "$name: process 1, uid $uid, a read-only root: one job, one release, done"
