#!/usr/bin/env bash
# Installs the Debian packages in the given lists, which are files in this script's folder, if they
# are missing. Without root, prints the command that installs them, and fails. On macOS, checks the
# Brewfile instead.
#   install_packages.sh [LIST...]   (default apt-packages.txt)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
[ "$#" -gt 0 ] || set -- apt-packages.txt

# macOS has bash 3.2, which lacks mapfile.
wanted=()
while IFS= read -r package; do wanted+=("$package"); done < <(
  grep -hvE '^[[:space:]]*(#|$)' "$@"
)
[ "${#wanted[@]}" -gt 0 ] || exit 0

if [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null; then
  if ! brew bundle check --no-upgrade --file ../Brewfile >/dev/null; then
    echo "setup: packages are missing; install them, then run make again:" >&2
    echo "setup:   brew bundle install --file Brewfile" >&2
    exit 1
  fi
  exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not a Debian-like system, so no package was checked or installed." >&2
  echo "setup: MCCL needs the contents of these Debian packages: ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f='${db:Status-Status} ${binary:Package}\n' 2>/dev/null |
  sed -n 's/^installed \([^:]*\).*/\1/p')
missing=()
while IFS= read -r package; do missing+=("$package"); done < <(
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sort -u <<<"$installed")
)
if [ "${#missing[@]}" -eq 0 ]; then
  exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
  {
    echo "setup: these packages are missing: ${missing[*]}"
    echo "setup: install them, then run make again:"
    echo
    echo "  sudo apt-get update && sudo apt-get install --yes --no-install-recommends ${missing[*]}"
    echo
  } >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Shows the output of apt-get only if it fails.
quietly() {
  apt-get --quiet=2 "$@" >"$said" 2>&1 </dev/null
}
install=(install --yes --no-install-recommends "${missing[@]}")
echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
# The package lists may be absent or stale. A simulation detects this without changing anything.
if ! quietly --simulate "${install[@]}"; then
  quietly update || true
fi
if ! quietly "${install[@]}"; then
  { quietly update && quietly "${install[@]}"; } || {
    cat "$said" >&2
    exit 1
  }
fi
