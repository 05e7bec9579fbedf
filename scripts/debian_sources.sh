#!/usr/bin/env bash
# Writes apt source lists with this machine's Debian archives, for an apt-get that uses its own
# package lists.
#   debian_sources.sh FOLDER TYPE [ARCHITECTURE]     TYPE: deb, or deb-src for sources
set -euo pipefail
folder=${1:?usage: debian_sources.sh FOLDER TYPE [ARCHITECTURE]}
type=${2:?usage: debian_sources.sh FOLDER TYPE [ARCHITECTURE]}
architecture=${3:-}

mkdir -p "$folder"
rm -f "$folder"/*.sources "$folder"/*.list
shopt -s nullglob
# Keeps only the release archives signed by Debian. Mirrors of the security archives may lack
# sources.
for file in /etc/apt/sources.list.d/*.sources; do
  awk -v RS= -v ORS='\n\n' '/debian-archive/ && !/-security/' "$file" |
    sed -E -e "s/^Types:.*/Types: $type/" -e '/^Architectures:/d' \
      ${architecture:+-e "s/^Suites:/Architectures: $architecture\nSuites:/"} >"$folder/${file##*/}"
done
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian*.list; do
  [ -s "$file" ] || continue
  sed -nE "/-security/d; s/^deb +(\[[^]]*\] +)?/$type ${architecture:+[arch=$architecture] }/p" "$file" \
    >"$folder/$(basename "$file" .list).list"
done
[ -n "$(cat "$folder"/*.sources "$folder"/*.list 2>/dev/null)" ] || {
  echo "debian_sources: /etc/apt names no Debian archive" >&2
  exit 1
}
