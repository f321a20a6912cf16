#!/bin/sh
# A calendar that jumps under the running daemon, and that is wrong when it starts: two hours back, a
# day ahead, the year 2038. libfaketime gives it to the daemon alone: clocks that the daemon reads
# through libc. What it may not do then: call the cloud more often, show a negative age, let a timer
# stand still, submit twice.
#
# usage: run.sh [PROGRAM]      PROGRAM: spotkeeper, target/debug/spotkeeper by default
set -eu

name=faketime
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/shell/world.sh"
find_program "$@"
library=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
[ -n "$library" ] || fail "wants libfaketime (Debian's package of that name)"

# A pass each 200 ms is 25 calls in 5 s, and a release a few more; more than this is a storm.
storm=100
calls_limit=1000000

# The calendar that the daemon sees from now on. A step of the calendar leaves CLOCK_MONOTONIC alone.
calendar() { echo "$1" >"$work/calendar.new" && mv "$work/calendar.new" "$work/calendar"; }
begin_with_calendar() {
    begin_daemon env LD_PRELOAD="$library" FAKETIME_TIMESTAMP_FILE="$work/calendar" \
        FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1
}

# libfaketime's own shared memory outlives a process that is killed.
forget() { rm -f "/dev/shm/faketime_shm_$1" "/dev/shm/sem.faketime_sem_$1"; }
end_more() { [ -z "$daemon" ] || forget "$daemon"; }

# A rule that delays nothing counts the calls that meet it.
count_calls() {
    curl -sSf -X PUT "$url/emulator/faults" >/dev/null \
        -d "[{\"call\": \"*\", \"delay\": \"0s\", \"times\": $calls_limit}]"
    sleep 5
    curl -sSf "$url/emulator/faults" | python3 -c "
import json, sys
print($calls_limit - json.load(sys.stdin)[0]['times'])"
}

# No number of seconds below zero and no text of an age with a minus, in all that is shown of a job.
no_negative_age() {
    ask ps -o json >"$work/ps.json"
    ask why "$1" -o json >"$work/why.json"
    ask describe "$1" -o json >"$work/describe.json"
    ask why "$1" >"$work/why.txt"
    ask ps -o wide >"$work/ps.txt" 2>&1
    python3 "$root/tests/faketime/ages.py" "$work" || fail "$2: a negative age"
}

begin_world
begin_emulator
daemon_file state
# Longer than this script takes.
job_file train 20000
calendar +0
begin_with_calendar
until_true "a checkpoint is saved" trained train saved
usual=$(count_calls)
[ "$usual" -gt 0 ] || fail "no calls are counted"
echo "faketime: $usual calls in 5 s with the true calendar"

attempts=1
for jump in -2h +1d "@2038-01-20 00:00:00"; do
    calendar "$jump"
    calls=$(count_calls)
    [ "$calls" -le $storm ] || fail "$jump: a storm of $calls calls"
    [ "$calls" -gt 0 ] || fail "$jump: no calls any more"
    no_negative_age train "$jump"
    # The timers go on: an end is seen, the look settles, the next attempt is sent and saves.
    release train
    attempts=$((attempts + 1))
    until_true "$jump: the next attempt" created train $attempts
    until_true "$jump: it saves" newly train saved
    no_negative_age train "$jump"
    [ "$(creates_of train)" = $attempts ] || fail "$jump: submitted twice"
    echo "faketime: $jump while it runs: $calls calls in 5 s, a release was made good"
    # The same calendar when it starts: nothing has told it the true time yet.
    forget "$daemon"
    kill_daemon
    begin_with_calendar
    release train
    attempts=$((attempts + 1))
    until_true "$jump from the start: the next attempt" created train $attempts
    until_true "$jump from the start: it saves" newly train saved
    calls=$(count_calls)
    [ "$calls" -le $storm ] || fail "$jump from the start: a storm of $calls calls"
    no_negative_age train "$jump from the start"
    echo "faketime: $jump from the start: $calls calls in 5 s, a release was made good"
done
calendar +0
calls=$(count_calls)
[ "$calls" -le $storm ] || fail "back again: a storm of $calls calls"
no_negative_age train "back again"
judge train:-:$attempts
echo "faketime: $attempts attempts, never two, no storm, no negative age: well"
