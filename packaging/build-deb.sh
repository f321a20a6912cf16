#!/usr/bin/env bash
# Makes spotkeeper_VERSION_ARCH.deb of a built program, with dpkg-deb and nothing else.
#
#   packaging/build-deb.sh BINARY OUT_FOLDER
#
# BINARY is run for its version, its help and its completions: it has to be of this machine's kind.
# The same inputs give the same bytes (SOURCE_DATE_EPOCH, default: the date of the commit, else 1980).
set -euo pipefail
binary=$(realpath "$1")
out=$(realpath "$2")
cd "$(dirname "$0")/.."
umask 022

version=$("$binary" --version | awk '{ print $2 }')
case $version in [0-9]*) ;; *) echo "no version in what $binary says" >&2; exit 1 ;; esac
arch=$(dpkg --print-architecture)
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 315532800)
fi
export SOURCE_DATE_EPOCH

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
doc=$root/usr/share/doc/spotkeeper
put() { install -D -m "$1" "$2" "$root/$3"; }

put 755 "$binary" usr/bin/spotkeeper
put 644 systemd/spotkeeper.service usr/lib/systemd/system/spotkeeper.service
put 644 systemd/spotkeeper.sysusers usr/lib/sysusers.d/spotkeeper.conf
put 644 systemd/spotkeeper.tmpfiles usr/lib/tmpfiles.d/spotkeeper.conf
put 644 packaging/environment etc/spotkeeper/environment
chmod 600 "$root/etc/spotkeeper/environment"
put 644 config/spotkeeper.toml usr/share/doc/spotkeeper/examples/spotkeeper.toml
put 644 LICENSE usr/share/doc/spotkeeper/copyright
put 644 README.md usr/share/doc/spotkeeper/README.md
put 644 CHANGELOG.md usr/share/doc/spotkeeper/CHANGELOG.md
cp -r --no-preserve=mode examples/. "$doc/examples/"
cp -r --no-preserve=mode docs "$doc/docs"
python3 packaging/sbom.py > "$doc/sbom.cdx.json"

mkdir -p "$root/usr/share/man/man1"
python3 packaging/man.py "$binary" | gzip -9n > "$root/usr/share/man/man1/spotkeeper.1.gz"
for shell in bash zsh fish; do
  "$binary" completion $shell > "$root/.completion"
  case $shell in
    bash) put 644 "$root/.completion" usr/share/bash-completion/completions/spotkeeper ;;
    zsh) put 644 "$root/.completion" usr/share/zsh/vendor-completions/_spotkeeper ;;
    fish) put 644 "$root/.completion" usr/share/fish/vendor_completions.d/spotkeeper.fish ;;
  esac
  rm "$root/.completion"
done

mkdir "$root/DEBIAN"
for script in preinst postinst prerm postrm; do
  put 755 packaging/deb/$script DEBIAN/$script
done
echo /etc/spotkeeper/environment > "$root/DEBIAN/conffiles"
# The C library that the program was linked with is the oldest it runs on.
glibc=$(objdump -T "$binary" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -1)
cat > "$root/DEBIAN/control" <<CONTROL
Package: spotkeeper
Version: $version
Architecture: $arch
Maintainer: spotkeeper maintainers <maintainers@spotkeeper.invalid>
Section: admin
Priority: optional
Installed-Size: $(du -k -s --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= ${glibc:-2.36}), libgcc-s1, systemd (>= 252)
Recommends: ca-certificates
Description: keeps preemptible training jobs on Alibaba Cloud PAI-DLC alive
 A daemon that submits training jobs to spot machines, notices when one is
 taken back, finds the newest checkpoint in OSS that really works, and submits
 the job again with the argument that resumes from it.
CONTROL

find "$root" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
dpkg-deb --root-owner-group -Zxz -z2 --build "$root" "$out/spotkeeper_${version}_${arch}.deb" >&2
echo "$out/spotkeeper_${version}_${arch}.deb"
