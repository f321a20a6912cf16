#!/bin/sh
# A network that fails between the daemon and the emulator: a black hole, resets, half of all packets
# lost, and replies that never arrive. During each a running job is released and a new one is put
# down; afterwards, by the ledger, each was created as often as it had to be. Wants root: all of it
# happens on the loopback of a network name space of its own, which goes when this script ends.
#
# usage: run.sh [PROGRAM]      PROGRAM: spotkeeper, target/debug/spotkeeper by default
#
# SPOTKEEPER_FAULT_SECONDS: how long each fault lasts, 40 by default: longer than the longest silence
# that the client waits out, 30 s. tests/long/run.sh takes ten minutes.
set -eu

name=network
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/shell/world.sh"
seconds=${SPOTKEEPER_FAULT_SECONDS:-40}
# Behind a long fault the next CreateJob may be as far away as the fault was long.
patience=$((patience + seconds))

if [ "${SPOTKEEPER_NETWORK:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || fail "wants root"
    find_program "$@"
    SPOTKEEPER_NETWORK=inside exec unshare --net /bin/sh "$0" "$program"
fi
find_program "$@"
ip link set lo up
nft add table inet spotkeeper

# The packets of one world: its emulator's port, without what the script itself sends, which has an
# address of its own.
begin_fault() {
    chain="port$port"
    nft add chain inet spotkeeper "$chain" '{ type filter hook output priority 0; }'
    nft add rule inet spotkeeper "$chain" ip saddr 127.0.0.9 accept
    nft add rule inet spotkeeper "$chain" ip daddr 127.0.0.9 accept
    case $1 in
    black-hole)
        nft add rule inet spotkeeper "$chain" tcp dport "$port" drop
        nft add rule inet spotkeeper "$chain" tcp sport "$port" drop
        ;;
    reset) nft add rule inet spotkeeper "$chain" tcp dport "$port" reject with tcp reset ;;
    half-lost)
        nft add rule inet spotkeeper "$chain" tcp dport "$port" numgen random mod 100 '<' 50 drop
        nft add rule inet spotkeeper "$chain" tcp sport "$port" numgen random mod 100 '<' 50 drop
        ;;
    # Connections come about; what is longer than their own packets is lost on the way back.
    replies-lost) nft add rule inet spotkeeper "$chain" tcp sport "$port" ip length '>' 100 drop ;;
    esac
}

end_fault() { nft delete chain inet spotkeeper "port$port"; }

# One world, one fault.
live() {
    name="network: $1"
    begin_world
    begin_emulator
    port=${url##*:}
    daemon_file state
    job_file first 150
    begin_daemon
    until_true "the first job saved something" trained first saved
    begin_fault "$1"
    sleep 1
    release first
    job_file second 30
    until_true "the first job has ended" grep -q '"event":"end"' "$work/cloud/ledger.jsonl"
    sleep "$seconds"
    first=$(creates_of first) second=$(creates_of second)
    case $1 in
    black-hole | reset) [ "$first $second" = "1 0" ] || fail "$first and $second were created" ;;
    replies-lost)
        [ "$first" = 1 ] || fail "an end was seen without a reply"
        [ "$second" = 1 ] || fail "the second job was created $second times"
        ;;
    half-lost) ;;
    esac
    kill -0 "$daemon" || fail "the daemon ended"
    end_fault
    until_true "both jobs are done" both_done
    # Time in which another attempt would come.
    sleep 5
    judge first:150:2 second:30:1
    echo "$name for $seconds s: first 2 attempts, second 1 ($second of it in the fault), never two: well"
}
both_done() { trained first done && trained second done && ended 3; }

pids=''
for fault in black-hole reset half-lost replies-lost; do
    (live "$fault") &
    pids="$pids $!"
done
bad=0
for pid in $pids; do wait "$pid" || bad=1; done
[ $bad = 0 ] || fail "a fault broke something"
