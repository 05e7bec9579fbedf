#!/usr/bin/env bash
# Runs PyTorch's own tests for NCCL in parallel shares. The last line of LOG gives the number of
# passed tests. Usage: run.sh PYTHON LOG
set -uo pipefail
python=$1 log=$2
shares=${SHARES:-12}
limit=${SECONDS_AT_MOST:-300}
cd "$(dirname "$0")/../../.."
if ! "$python" -c 'import expecttest' 2>/dev/null; then
  echo "PyTorch's own tests need the package expecttest (pip install expecttest)" | tee "$log" >&2
  exit 1
fi
failed=0
pids=()
for share in $(seq "$shares"); do
  timeout "$limit" "$python" -m pytest -q -rfE --tb=short -p no:cacheprovider tests/gpu/torch_suite \
    --share "$share/$shares" >"$log.$share" 2>&1 &
  pids+=($!)
done
for share in $(seq "$shares"); do
  wait "${pids[share - 1]}"
  status=$?
  [ "$status" -eq 0 ] && continue
  failed=1
  [ "$status" -eq 124 ] && echo "share $share was not done after $limit s" >>"$log.$share"
  tail -60 "$log.$share"
done
"$python" - "$log" "$shares" <<'END' | tee "$log"
import collections, re, sys
log, shares = sys.argv[1], int(sys.argv[2])
counts = collections.Counter()
for share in range(1, shares + 1):
    with open(f"{log}.{share}") as file:
        lines = file.read().splitlines()
    print(*[line for line in lines if line.startswith(("FAILED", "ERROR", "share "))], sep="\n", end="")
    for line in reversed(lines):
        found = re.findall(r"(\d+) (passed|failed|skipped|xfailed|errors?)", line)
        if found:
            counts.update({kind: int(number) for number, kind in found})
            break
print()
print(", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "none ran")
END
exit "$failed"
