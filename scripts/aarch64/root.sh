#!/usr/bin/env bash
# Sets up what MCCL is built with for ARM machines: Debian's libraries for them, unpacked into a
# folder, from where this machine gets its own, with package lists apart, so that the machine's stay as
# they are.
#   root.sh FOLDER
# What is there already is kept. Exits with 3, and says why, where the packages cannot be had.
set -euo pipefail
mkdir -p "${1:?usage: root.sh FOLDER}"
folder=$(cd "$1" && pwd)
packages=(libssl3 libssl-dev libhwy1 libhwy-dev libfmt9 libfmt-dev libspdlog-dev libspdlog1.10
  nlohmann-json3-dev libcli11-dev libgtest-dev libgmock-dev googletest)

[ "$(cat "$folder/root/.packages" 2>/dev/null)" = "${packages[*]}" ] && exit
apt=$folder/apt
mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/packages"
: >"$apt/none"
"${BASH_SOURCE[0]%/*}/../debian_sources.sh" "$apt/parts" deb arm64 || exit 3
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64
  -o Dir::Etc::SourceList="$apt/none" -o Dir::Etc::SourceParts="$apt/parts"
  -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/none" -o Dir::Cache="$apt/cache"
  -o APT::Sandbox::User=root)
apt-get "${options[@]}" update &&
  (cd "$apt/packages" && apt-get "${options[@]}" download "${packages[@]}") || {
  echo "aarch64: apt-get cannot get Debian's libraries for ARM" >&2
  exit 3
}
rm -rf "$folder/root"
for package in "$apt"/packages/*.deb; do dpkg -x "$package" "$folder/root"; done
# Where compilers look that are not told of the folder's own name for ARM.
cp "$folder"/root/usr/include/aarch64-linux-gnu/openssl/*.h "$folder/root/usr/include/openssl/"
echo "${packages[*]}" >"$folder/root/.packages"
