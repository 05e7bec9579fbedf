#!/usr/bin/env bash
# Runs a command in a virtual machine (the guest) with Debian's kernel under qemu. The guest has a
# software RDMA device (RoCE, "rxe0", on ADDRESS). It sees this machine's files read-only, under a
# temporary writable layer that is discarded at the end. This script prints the guest's console and
# exits with the command's status. Usage: guest.sh [-k SUITE] [-n CPUS] [-m MEMORY] [-t SECONDS] [-a
# ADDRESS] [-w END:PATH] -- COMMAND... SUITE is the Debian release whose newest kernel runs, such as
# trixie-backports; by default, it is Linux 6.1 of this machine's package sources. ADDRESS is
# 10.9.0.1 by default. With -w, the guest's network is a direct connection to another guest, through
# a Unix socket at PATH. END is `listen` for the guest that starts first, and `connect` for the
# other. Exit status 77: a guest cannot run here, and the last line gives the reason. The kernel is
# fetched from Debian once, into GUEST_CACHE (default: build/guest).
set -euo pipefail

export PATH=$PATH:/usr/sbin:/sbin
root=$(cd "$(dirname "$0")/.." && pwd)
suite='' cpus=2 memory=6G seconds=900 address=10.9.0.1 wire=''
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    -k) suite=$2 ;;
    -n) cpus=$2 ;;
    -m) memory=$2 ;;
    -t) seconds=$2 ;;
    -a) address=$2 ;;
    -w) wire=$2 ;;
    *) echo "guest: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
shift
cache=${GUEST_CACHE:-$root/build/guest}/${suite:-installed}

unavailable() { echo "guest: $*"; exit 77; }
missing=
for need in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod cpio:cpio rdma:iproute2; do
  command -v "${need%%:*}" >/dev/null || missing+=" ${need##*:}"
done
[[ -e /usr/lib/x86_64-linux-gnu/libibverbs.so.1 ]] || missing+=" ibverbs-providers"
[[ -z $missing ]] || unavailable "these packages are missing:$missing"

# Kernel modules for the guest's root file system, its RDMA device, virtual hosts (veth, bridge),
# network disturbances (netem), and TLS. Newer kernels contain some of them.
modules="crc32_generic crc32c_generic virtio_pci 9pnet_virtio 9p overlay virtio_net ib_uverbs
  rdma_ucm rdma_cm rdma_rxe veth bridge sch_netem tls"

# Makes apt use SUITE, from the mirror that this machine uses.
use_suite() {
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep '/debian/$' | head -1)
  [[ -n $mirror ]] || return 1
  mkdir -p apt/lists/partial apt/archives/partial
  echo "deb $mirror $suite main" >apt/sources.list
  cat >apt/conf <<CONF
Dir::Etc::SourceList "$PWD/apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt";
CONF
  export APT_CONFIG=$PWD/apt/conf
}

newest_kernel() {
  local versions='6\.1\.0-[0-9]+'
  [[ -z $suite ]] || versions='[0-9.]+\+deb[0-9]+'
  apt-cache search --names-only \
    "^linux-image-$versions-amd64\$" | awk '{print $1}' | sed 's/^linux-image-//' | sort -V |
    tail -1
}

fetch_kernel() {
  local version package
  [[ -z $suite ]] || use_suite || return 1
  version=$(newest_kernel)
  # Updates the package lists if this machine has none.
  [[ -n $version ]] || {
    apt-get update -qq >/dev/null 2>&1 && version=$(newest_kernel)
  }
  [[ -n $version ]] || return 1
  rm -rf kernel ./*.deb
  # In newer releases, the package of the kernel depends on others that contain its files.
  for package in image base binary modules; do
    apt-get download -qq "linux-$package-$version" 2>/dev/null ||
      [[ $package != image ]] || return 1
  done
  for package in ./*.deb; do dpkg -x "$package" kernel || return 1; done
  rm -rf ./*.deb apt
  [[ -d kernel/lib ]] || mv kernel/usr/lib kernel/lib
  cp "$(find kernel -name 'vmlinuz*' | head -1)" vmlinuz
  depmod -b kernel "$version" && echo "$version" >version
}

# Makes a RAM disk whose init process mounts the file systems and then runs the command.
make_ramdisk() {
  local version module file
  version=$(cat version)
  rm -rf ramdisk && mkdir -p ramdisk/{bin,proc,sys,dev,lib/modules/"$version"}
  cp "$(command -v busybox)" ramdisk/bin/busybox
  cp kernel/lib/modules/"$version"/modules.{order,builtin,builtin.modinfo} \
    ramdisk/lib/modules/"$version"/
  for module in $modules; do
    modprobe -d "$PWD/kernel" -S "$version" --show-depends "$module" 2>/dev/null |
      awk '$1 == "insmod" { print $2 }' || true
  done | sort -u | while read -r file; do
    install -D "$file" "ramdisk/${file#"$PWD"/kernel/}"
  done
  find ramdisk -name '*.ko.xz' -exec unxz {} +
  depmod -b ramdisk "$version"
  cat >ramdisk/init <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for module in ${modules//$'\n'/ }; do modprobe \$module 2>/dev/null; done
mkdir -p /lower /rw /root
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose host /lower
mount -t tmpfs -o size=2g none /rw; mkdir -p /rw/u /rw/w
mount -t overlay -o lowerdir=/lower,upperdir=/rw/u,workdir=/rw/w none /root
mount -t proc none /root/proc; mount -t sysfs none /root/sys; mount --move /dev /root/dev
mkdir -p /root/dev/shm /root/dev/pts; ln -sf /proc/self/fd /root/dev/fd
mount -t tmpfs none /root/dev/shm; mount -t devpts none /root/dev/pts
ip link set lo up
exec chroot /root /bin/bash \$(tr ' ' '\n' </proc/cmdline | sed -n 's/^guest.run=//p')
INIT
  chmod +x ramdisk/init
  (cd ramdisk && find . | cpio -o -H newc 2>/dev/null | gzip -1) >ramdisk.gz.new
  mv ramdisk.gz.new ramdisk.gz
}

mkdir -p "$cache"
(
  cd "$cache"
  exec 9>lock && flock 9
  [[ -e version ]] || fetch_kernel || exit 1
  [[ ramdisk.gz -nt version && ramdisk.gz -nt "$root/scripts/guest.sh" ]] || make_ramdisk
) || unavailable "Debian's kernel cannot be fetched (linux-image-*-amd64${suite:+ of $suite})"

job=$(mktemp -d "$cache/job.XXXXXX")
trap 'rm -rf "$job"' EXIT
{
  echo 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root'
  echo 'mkdir -p /root; hostname guest; ulimit -l unlimited'
  echo "ip link set eth0 mtu 9000 up; ip addr add $address/24 dev eth0"
  echo 'rdma link add rxe0 type rxe netdev eth0'
  printf 'cd %q\n' "$PWD"
  printf '( %s )\n' "$(printf '%q ' "$@")"
  echo 'echo "guest-exit $?"; echo o >/proc/sysrq-trigger; while :; do :; done'
} >"$job/run"
case $wire in
  '') network=user,restrict=on ;;
  listen:*) network=stream,server=on,addr.type=unix,addr.path=${wire#*:} ;;
  connect:*) network=stream,server=off,addr.type=unix,addr.path=${wire#*:} ;;
  *) echo "guest: -w: expected listen:PATH or connect:PATH; found $wire" >&2; exit 2 ;;
esac
# no_timer_check: on a busy machine, the kernel may conclude that the emulated timer does not work.
timeout --foreground "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m "$memory" \
  -smp "$cpus" -nographic -no-reboot -kernel "$cache/vmlinuz" \
  -initrd "$cache/ramdisk.gz" -append "console=ttyS0 quiet no_timer_check panic=-1 guest.run=$job/run" \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -netdev "$network,id=n0" \
  -device "virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:09:00:$(printf %02x "${address##*.}")" \
  </dev/null 2>&1 |
  sed -u 's/\r//g' | tee "$job/log" | grep --line-buffered -v -e '^guest-exit' -e 'sysrq: Power Off' \
    -e 'reboot: Power down' || true
status=$(sed -n 's/^guest-exit \([0-9]*\).*/\1/p' "$job/log" | tail -1)
[[ -n $status ]] || echo "guest: the guest did not end within $seconds s, or did not start"
exit "${status:-1}"
