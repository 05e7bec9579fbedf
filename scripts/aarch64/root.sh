#!/usr/bin/env bash
# Unpacks Debian's ARM packages of the libraries that MCCL needs into a folder. Downloads them from
# this machine's archives, with separate package lists, so that the machine's own stay unchanged.
#   root.sh FOLDER
# Existing files are kept. Exits with 3 and prints the reason if the packages are unavailable.
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
# Copies OpenSSL's ARM headers to the common folder, because not every compiler searches Debian's
# folder for ARM.
cp "$folder"/root/usr/include/aarch64-linux-gnu/openssl/*.h "$folder/root/usr/include/openssl/"
echo "${packages[*]}" >"$folder/root/.packages"
