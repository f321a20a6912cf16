#!/bin/sh
# A state folder whose syncs fail (EIO, by strace), that becomes read-only, that is reached through a
# bind mount, that turns up on another machine: nothing is submitted without its intent on the disk,
# no second daemon gets in, and each job goes on once the disk works. Wants root: what is mounted is
# mounted in a name space of its own, which goes when this script ends.
#
# usage: run.sh [PROGRAM]      PROGRAM: spotkeeper, target/debug/spotkeeper by default
set -eu

name=store_faults
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/shell/world.sh"

if [ "${SPOTKEEPER_STORE_FAULTS:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || fail "wants root"
    find_program "$@"
    SPOTKEEPER_STORE_FAULTS=inside exec unshare --mount --propagation private /bin/sh "$0" "$program"
fi
find_program "$@"

# Time in which a daemon that may submit would have done so.
chances=5

# fail_syncs WHICH: from now on the syncs of the daemon fail; WHICH: strace's `when`.
fail_syncs() {
    strace -qq -f -p "$daemon" -o "$work/strace.log" -e trace=fsync,fdatasync \
        -e inject=fsync,fdatasync:error=EIO:when="$1" &
    tracer=$!
    until_true "strace has the daemon" sh -c "grep -q 'TracerPid:.$tracer' /proc/$daemon/task/*/status"
}
mend_syncs() {
    kill "$tracer"
    wait "$tracer" 2>/dev/null || :
    tracer=''
}
injected() { grep -q INJECTED "$work/strace.log"; }
# The script's own children in a world: end_world calls this.
end_more() {
    [ -z "${tracer:-}" ] || kill "$tracer" 2>/dev/null || :
    umount "$work/disk" "$work/bound" 2>/dev/null || :
}

# A job that runs and has saved something, in a new world.
begin() {
    begin_world
    begin_emulator
    daemon_file "$1"
    job_file train "$2"
    begin_daemon
    until_true "a checkpoint is saved" trained train saved
}

# finish STEPS CREATES: the job is done, and nothing else was created.
finish() {
    until_true "the job is done" trained train done
    until_true "its last attempt has ended" ended "$2"
    sleep 2
    judge "train:$1:$2"
}

all_syncs_fail() {
    begin state 150
    fail_syncs 1+
    release train
    until_true "the attempt has ended" ended 1
    until_true "the store cannot write" logged 'the store cannot write'
    sleep $chances
    injected || fail "no sync failed"
    [ "$(count create)" = 1 ] || fail "a job was created while no sync worked"
    kill -0 "$daemon" || fail "the daemon ended"
    mend_syncs
    until_true "the job is created again" created train 2
    logged 'the store is open again' || fail "the store was not opened again"
    finish 150 2
    echo "store_faults: no job while syncs failed, one after it: well"
}

# The Nth sync behind a release fails, and only that one.
one_sync_fails() {
    begin state 150
    fail_syncs "$1"
    release train
    until_true "the job is created again" created train 2
    until_true "a sync has failed" injected
    mend_syncs
    finish 150 2
    echo "store_faults: sync $1 behind a release failed, one job after it: well"
}

becomes_read_only() {
    begin_world
    begin_emulator
    mkdir "$work/disk"
    mount -t tmpfs -o size=64m,mode=700 tmpfs "$work/disk"
    daemon_file disk/state
    job_file train 300
    begin_daemon
    until_true "a checkpoint is saved" trained train saved
    # What is open for writing keeps a file system from a plain remount; a bind of its own does not.
    kill_daemon
    mount -o remount,ro "$work/disk"
    release train
    begin_daemon
    sleep $chances
    [ "$(count create)" = 1 ] || fail "a job was created on a disk that is read-only"
    if kill -0 "$daemon" 2>/dev/null; then kill_daemon; else
        wait "$daemon" && fail "it ended well without a state" || :
        daemon=''
    fi
    grep -qi 'read-only' "$work/daemon.log" || fail "it does not say that the disk is read-only"
    mount -o remount,rw "$work/disk"
    begin_daemon
    finish 300 2
    echo "store_faults: no job on a read-only disk, one after it: well"
}

# locked_out STATE WHAT: a second daemon on the same state by another path ends, and says why.
locked_out() {
    sed "s|^state_directory.*|state_directory = \"$1\"|; s|api.sock|second.sock|" \
        "$work/spotkeeper.toml" >"$work/second.toml"
    status=0
    ALIBABA_CLOUD_ACCESS_KEY_ID=id ALIBABA_CLOUD_ACCESS_KEY_SECRET=secret timeout 60 \
        "$program" run --config "$work/second.toml" 2>"$work/second.log" || status=$?
    [ $status = 8 ] || fail "$2: a second daemon got in, or ended otherwise ($status)"
    grep -q 'held by another instance' "$work/second.log" || fail "$2: it does not say why"
}

other_paths() {
    begin state 600
    mkdir "$work/bound"
    mount --bind "$work/state" "$work/bound"
    ln -s state "$work/linked"
    locked_out bound "a bind mount"
    locked_out linked "a symbolic link"
    locked_out ./state/../state "dots"
    rm "$work/state/lock"
    locked_out bound "a bind mount, and the lock file deleted"
    umount "$work/bound"
    release train
    finish 600 2
    echo "store_faults: no second daemon by a bind mount, a link, or without the lock file: well"
}

# The same disk in another machine: whoever runs on the first one may be alive.
another_machine() {
    begin state 600
    kill_daemon
    echo 0123456789abcdef0123456789abcdef >"$work/machine-id"
    [ -e /etc/machine-id ] || fail "wants a machine with an id"
    # In a name space of its own: only this daemon sees the other id.
    begin_daemon unshare --mount sh -c 'mount --bind "$0" /etc/machine-id; exec "$@"' \
        "$work/machine-id"
    until_true "it says that it is elsewhere" logged 'another machine'
    release train
    until_true "the attempt has ended" ended 1
    sleep $((chances + 3))
    [ "$(count create)" = 1 ] || fail "a job was created on a state of another machine"
    kill_daemon
    begin_daemon
    finish 600 2
    echo "store_faults: nothing is submitted on another machine: well"
}

pids=''
run() { ("$@") & pids="$pids $!"; }
run all_syncs_fail
run becomes_read_only
run other_paths
run another_machine
for which in 1 2 4 7; do run one_sync_fails $which; done
bad=0
for pid in $pids; do wait "$pid" || bad=1; done
[ $bad = 0 ] || fail "the store broke a promise"
