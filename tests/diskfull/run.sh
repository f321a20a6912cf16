#!/bin/sh
# A full disk under the state folder: nothing is submitted while the store cannot write, and exactly
# one attempt follows once there is room again. Wants root: the small file system is mounted in a
# name space of its own, which goes when this script ends.
#
# usage: run.sh [PROGRAM]      PROGRAM: spotkeeper, target/debug/spotkeeper by default
set -eu

name=diskfull
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/shell/world.sh"

if [ "${SPOTKEEPER_DISKFULL:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || fail "wants root"
    find_program "$@"
    SPOTKEEPER_DISKFULL=inside exec unshare --mount --propagation private /bin/sh "$0" "$program"
fi
find_program "$@"

free_kib() { df --output=avail "$work/small" | tail -1 | tr -d ' '; }
end_more() { umount "$work/small" 2>/dev/null || :; }

begin_world
mkdir "$work/small"
mount -t tmpfs -o size=4m,mode=700 tmpfs "$work/small"
begin_emulator
daemon_file small/state
job_file train 150
begin_daemon
until_true "the job is created" created train 1
until_true "a checkpoint is saved" trained train saved

# Fill the disk to the last byte, then take the machine away.
dd if=/dev/zero of="$work/small/filler" bs=1k 2>/dev/null || :
[ "$(free_kib)" = 0 ] || fail "the disk is not full: $(free_kib) KiB are free"
release train
until_true "the store cannot write" logged 'the store cannot write'
until_true "the attempt has ended" ended 1
sleep 8
[ "$(free_kib)" = 0 ] || fail "the disk did not stay full"
[ "$(count create)" = 1 ] || fail "a job was created while the store could not write"
kill -0 "$daemon" || fail "the daemon ended"

rm "$work/small/filler"
until_true "the job is created again" created train 2
until_true "the job is done" trained train done
until_true "its last attempt has ended" ended 2
sleep 2
judge train:150:2
echo "diskfull: no job while the disk was full, one after it: well"
