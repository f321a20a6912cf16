#!/usr/bin/env bash
# The package inside booted Debians: 12 (systemd 252) and 13 (systemd 257), as root, with nspawn.
#
#   tests/systemd/run.sh [RELEASE_BINARY [DEBUG_BINARY]]
#
# The release binary goes into the package. The debug one has the test hook that freezes the driver
# and is used for that alone. What is checked stands in promises.sh and misuse.sh, which run in each of
# them, each in a boot of its own.
# With SPOTKEEPER_ROOTFS=FOLDER the Debians are kept in, and taken from, FOLDER/{bookworm,trixie}.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
release=${1:-$target/release/spotkeeper}
debug=${2:-$target/debug/spotkeeper}
for binary in "$release" "$debug"; do
  [ -x "$binary" ] || { echo "there is no $binary: build it first" >&2; exit 1; }
done

missing=()
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
command -v objdump >/dev/null || missing+=(binutils)
command -v pgrep >/dev/null || missing+=(procps)
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -q
  apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

work=$(mktemp -d)
making=()
booted=()
cleanup() {
  touch "$work/end"
  for pid in "${making[@]}"; do kill "$pid" 2>/dev/null || true; done
  # A container's init: its nspawn then ends by itself.
  for file in "$work"/*.leader; do
    [ ! -e "$file" ] || kill -KILL "$(cat "$file")" 2>/dev/null || true
  done
  for pid in "${making[@]}" "${booted[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 143' INT TERM

rootfs=${SPOTKEEPER_ROOTFS:-$work}
make_rootfs() {
  [ -e "$rootfs/$1/etc/os-release" ] && return
  # What it mounts and starts goes with it, however it ends.
  exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private bash -euc '
    mmdebstrap --mode=root --variant=essential --quiet \
      --include=systemd,systemd-sysv,dbus,ca-certificates,libgcc-s1 \
      --dpkgopt=force-unsafe-io --dpkgopt="path-exclude=/usr/share/doc/*" \
      --dpkgopt="path-exclude=/usr/share/man/*" --dpkgopt="path-exclude=/usr/share/locale/*" \
      "$1" "$2.new"
    mv "$2.new" "$2"
  ' make "$1" "$rootfs/$1"
}

echo "== package and Debians"
mkdir "$work/deb" "$work/again" "$work/bin"
make_rootfs bookworm >"$work/make-bookworm.log" 2>&1 & making+=($!)
make_rootfs trixie >"$work/make-trixie.log" 2>&1 & making+=($!)
for out in deb again; do
  packaging/build-deb.sh "$release" "$work/$out" >"$work/$out.log" 2>&1 & making+=($!)
done
while [ ${#making[@]} -gt 0 ]; do
  wait "${making[0]}" || { cat "$work"/*.log; echo "cannot be made" >&2; exit 1; }
  making=("${making[@]:1}")
done
deb=$(ls "$work"/deb/*.deb)
cmp "$deb" "$work/again/${deb##*/}" ||
  { echo "the same inputs gave another package" >&2; exit 1; }
cp "$deb" "$work/bin/spotkeeper.deb"
cp "$debug" "$work/bin/spotkeeper-debug"
cp tests/systemd/{lib,promises,misuse}.sh "$work/bin/"
chmod -R a+rX "$work"
dpkg-deb --contents "$deb" | awk '{ print $1, $2, $6 }' | grep -v '/docs/\|/examples/'

# Boots one of them on a throw-away overlay, with a loopback of its own, runs a script in it, and
# powers it off.
run_in() {
  local suite=$1 script=$2 pid leader= code=0
  [ ! -e "$work/end" ] || return 1
  echo "== $suite: $script ($SECONDS s)"
  systemd-nspawn -q -D "$rootfs/$suite" --register=no --keep-unit --console=pipe \
    --volatile=overlay --private-network --machine="spotkeeper-$suite" \
    --bind-ro="$work/bin:/opt/t" --boot </dev/null >"$work/$suite.log" 2>&1 &
  pid=$!
  for _ in $(seq 600); do
    leader=$(pgrep -P "$pid" | head -1 || true)
    [ -z "$leader" ] || echo "$leader" > "$work/$suite.leader"
    [ -n "$leader" ] && [ -S "/proc/$leader/root/run/systemd/private" ] && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  [ -n "$leader" ] || { cat "$work/$suite.log"; echo "it does not boot"; return 1; }
  nsenter -t "$leader" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    bash "/opt/t/$script" || code=$?
  kill -s RTMIN+4 "$leader" 2>/dev/null || true
  for _ in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  kill -KILL "$leader" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  rm -f "$work/$suite.leader"
  return $code
}
both_in() {
  local code=0 script
  for script in promises.sh misuse.sh; do
    run_in "$1" $script || code=1
  done
  return $code
}

for suite in bookworm trixie; do
  both_in $suite >"$work/$suite.out" 2>&1 &
  booted+=($!)
done
failed=0
for suite in bookworm trixie; do
  wait "${booted[0]}" || failed=1
  booted=("${booted[@]:1}")
  cat "$work/$suite.out"
done
[ "$failed" = 0 ] || { echo "== failed" >&2; exit 1; }
! grep -F "$work" /proc/mounts || { echo "a mount is left" >&2; exit 1; }
echo "== all of it held ($SECONDS s)"
