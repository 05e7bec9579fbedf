#include "cli/hosts/gather_script.h"

#include <fmt/format.h>

#include "cli/launch/words.h"

namespace mccl::cli::hosts {
namespace {

constexpr const char* kBegin = R"sh(
PATH="$PATH:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/opt/homebrew/bin"
have() { command -v "$1" > /dev/null 2>&1; }
patiently() { if have timeout; then timeout 15 "$@"; else "$@"; fi; }
section() {
  n=$1; shift
  echo "$T begin $n"
  "$@" < /dev/null 2> /dev/null | head -c 1000000
  echo; echo "$T end $n"
}
say() { printf '%s\n' "$*"; }
# These leave their answer in `l`: a shell of its own for each of many files takes long.
content() { l=; [ -r "$1" ] && read -r l < "$1" 2> /dev/null; }
target() { l=; [ -L "$1" ] && l=$(readlink "$1") && l=${l##*/}; }
)sh";

constexpr const char* kMachine = R"sh(
machine() {
  say system "$(uname -s)"
  say kernel "$(uname -r)"
  say processor "$(uname -m)"
  say uid "$(id -u)"
  say files "$(ulimit -Sn)"
  say most_files "$(ulimit -Hn)"
  say locked "$(ulimit -l)"
  have sudo && patiently sudo -n true && say sudo yes
  m=$(command -v mccl)
  for p in $PLACES; do [ -n "$m" ] || { [ -x "$p" ] && m=$p; }; done
  [ -n "$m" ] && say mccl "$m" && say mccl_version "$(patiently "$m" --version)"
  if [ "$(uname -s)" = Darwin ]; then
    say os "macOS $(sw_vers -productVersion)"
    say boot "$(sysctl -n kern.bootsessionuuid)"
    say cores "$(sysctl -n hw.ncpu)"
    say memory_kib "$(($(sysctl -n hw.memsize) / 1024))"
  else
    [ -r /etc/os-release ] && say os "$(. /etc/os-release; echo "$PRETTY_NAME")"
    content /proc/sys/kernel/random/boot_id; say boot "$l"
    say cores "$(nproc)"
    c=/sys/devices/system/cpu/cpu0/cpufreq
    content $c/scaling_governor; say governor "$l"
    content $c/scaling_cur_freq; say khz "$l"
    content $c/cpuinfo_max_freq; say most_khz "$l"
    content /proc/loadavg; say load "$l"
    while read -r k v u; do
      [ "$k" = MemTotal: ] && say memory_kib "$v"
    done < /proc/meminfo
    say shared_kib "$(df -Pk /dev/shm | { read -r l; read -r a b c d e; say "$d"; })"
    f=/dev/shm/mccl-doctor.$$
    if ( : > $f ) 2> /dev/null; then rm -f $f; say shared yes; else say shared no; fi
  fi
}
variables() { env | grep '^MCCL_' | sed 's/^\(MCCL_[A-Z_]*KEY\)=..*/\1=(set)/'; }
versions() {
  have "$PYTHON" || PYTHON=python3
  patiently "$PYTHON" -c '
import sys
print("python", sys.version.split()[0])
from importlib import metadata
names = "torch mlx mlx-metal mlx-cuda numpy mccl-engine".split()
# What is half gone, or cannot be read, has no version.
for n in names + ["nvidia-nccl-cu%d" % cuda for cuda in range(10, 30)]:
    try:
        for d in metadata.distributions(name=n):
            if d.version and d.metadata["Name"].lower().replace("_", "-") == n:
                print(n, d.version)
                break
    except Exception:
        pass'
}
)sh";

constexpr const char* kLinux = R"sh(
net() {
  dummies=$(ip -o link show type dummy | head -c 100000 | while read -r n i r; do i=${i%:}; echo " ${i%@*} "; done)
  for i in /sys/class/net/*; do
    [ -d "$i" ] || continue
    w=no; { [ -d "$i/wireless" ] || [ -e "$i/phy80211" ]; } && w=yes
    d=no; [ -e "$i/device" ] && d=yes
    [ -d "$i/bonding" ] && d=yes
    { [ -e "$i/tun_flags" ] || [ -d "$i/bridge" ]; } && d=joins
    # What is neither Ethernet nor InfiniBand is a tunnel: WireGuard has no other mark.
    content "$i/type"
    case $d$l in no1|no32|no|yes*|joins*) ;; *) d=joins ;; esac
    case $dummies in *" ${i##*/} "*) d=joins ;; esac
    a=${i##*/}
    for f in operstate carrier speed mtu address; do content "$i/$f"; a="$a|$l"; done
    target "$i/device/driver"; a="$a|$w|$d|$l"
    target "$i/master"; a="$a|$l"
    content "$i/flags"; say "$a|$l"
  done
}
address() { ip -o addr show; }
route() { ip -4 route show; }
rdma() {
  for d in /sys/class/infiniband/*; do
    for p in "$d"/ports/*; do
      [ -d "$p" ] || continue
      n=; for e in "$p"/gid_attrs/ndevs/*; do [ -n "$n" ] || { content "$e"; n=$l; }; done
      content "$p/state"; a=$l
      content "$p/rate"; say "device|${d##*/}|$n|$a|$l"
      for g in "$p"/gids/*; do
        content "$g"
        case $l in 0000:0000:0000:0000:0000:0000:0000:0000|'') ;; *) say "gid|${d##*/}|$l" ;; esac
      done
    done
  done
}
thunderbolt() {
  for i in /sys/class/net/*; do
    target "$i/device/driver"
    case $l in *thunderbolt*) ;; *) continue ;; esac
    x=$(cd -P "$i/device/.." && pwd) || continue
    a=${i##*/}
    for f in "${x%/*}/unique_id" "$x/unique_id" "$x/device_name" "$x/rx_speed" "$x/rx_lanes"; do
      content "$f"; a="$a|$l"
    done
    say "$a"
  done
}
gpu() { have nvidia-smi && patiently nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits; }
gpu_links() { have nvidia-smi && patiently nvidia-smi topo -m; }
gpu_peers() { have nvidia-smi && patiently nvidia-smi topo -p2p r; }
)sh";

constexpr const char* kMac = R"sh(
address() { ifconfig -a; }
route() { netstat -rn -f inet; }
thunderbolt() { patiently system_profiler SPThunderboltDataType -json; }
ports() { networksetup -listallhardwareports; }
rdma() { have ibv_devices && patiently ibv_devices; }
rdma_control() { have rdma_ctl && patiently rdma_ctl status; }
)sh";

constexpr const char* kEnd = R"sh(
section machine machine
section variables variables
section versions versions
for s in $SECTIONS; do section "$s" "$s"; done
echo "$T gathered"
)sh";

}  // namespace

std::string gather_script(const GatherPlan& plan) {
  std::string places;
  for (const std::string& place : plan.places) {
    if (!places.empty()) places += ' ';
    places += place;
  }
  // The clock comes before anything that takes time.
  return fmt::format(
      "LC_ALL=C; LANG=C; export LC_ALL LANG\nT={}\nPYTHON={}\nPLACES={}\necho \"$T clock $(date "
      "+%s)\"\n{}{}"
      "if [ \"$(uname -s)\" = Darwin ]; then\n{}"
      "SECTIONS='address route thunderbolt ports rdma rdma_control'\nelse\n{}"
      "SECTIONS='net address route rdma thunderbolt gpu gpu_links gpu_peers'\nfi\n{}",
      launch::shell_word(plan.token), launch::shell_word(plan.python), launch::shell_word(places),
      kBegin, kMachine, kMac, kLinux, kEnd);
}

}  // namespace mccl::cli::hosts
