#!/usr/bin/env bash
# Boots two guests with a wire between them, so that ranks run on two machines, and runs
# one_of_two.sh in both. Prints the output of the first as it arrives, and then that of the second.
# Usage: two_guests.sh BUILD_FOLDER [PYTHON]
# Exit status: 0 if all checks passed on both, 77 if guests cannot run here.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
guest=$here/../../scripts/guest.sh
limit=1500
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$guest" -t $limit -m 4G -a 10.9.0.1 -w "listen:$folder/wire" -- "$here/one_of_two.sh" 0 "$@" &
first=$!
# The first guest creates its end of the wire before it boots.
until [[ -S $folder/wire ]]; do
  if ! kill -0 $first 2>/dev/null; then
    wait $first
    exit $?
  fi
  sleep 0.2
done
"$guest" -t $limit -m 4G -a 10.9.0.2 -w "connect:$folder/wire" -- "$here/one_of_two.sh" 1 "$@" \
  >"$folder/second" &
second=$!
status=0
wait $first || status=$?
wait $second || status=$?
echo "the second machine:"
sed 's/^/  /' "$folder/second"
exit $status
