#!/usr/bin/env bash
# Runs everything that needs GPUs and writes docs/gpu.md: what passed, versions, figures.
# PYTHON names the interpreter that has mccl and a torch with CUDA.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
if ! "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "make test-gpu: this machine has no CUDA GPU that torch can use" >&2
  exit 1
fi
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
launch() { "$python" -m torch.distributed.run --nproc_per_node="$gpus" --standalone "$@" 2>&1; }
logs=$(mktemp -d)
"$python" -m pytest -q -p no:cacheprovider tests/gpu | tee "$logs/tests"
failed=${PIPESTATUS[0]}
launch examples/ddp_digits.py --device cuda --epochs 10 | grep -E '^(ok|FAIL)' | tee "$logs/digits"
[ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
if [ "$gpus" -gt 1 ]; then
  launch tests/gpu/figures.py graphs | grep -E '^(torch| +[0-9b]|host)' | tee "$logs/graphs"
fi
launch tests/gpu/figures.py host | grep -E '^ +[0-9b]' | tee "$logs/host"
{
  echo "# On GPUs"
  echo
  echo "Written by \`tests/gpu/run.sh\` (\`make test-gpu\`) on $(date -u +%Y-%m-%d): $gpus GPUs, $(nproc) cores."
  echo
  echo "Tests: $(tail -1 "$logs/tests")"
  echo
  echo "The digits, trained by DistributedDataParallel on the GPUs:"
  printf '\n```\n%s\n```\n' "$(cat "$logs/digits")"
  if [ "$gpus" -gt 1 ]; then
    echo
    echo "An all_reduce of bf16 in CUDA graphs, microseconds, medians of one run (\`MCCL_BACKEND=cuda\`,"
    echo "NCCL, torch's symmetric memory; the last column is the first over the second):"
    printf '\n```\n%s\n```\n' "$(cat "$logs/graphs")"
  fi
  echo
  echo "The path through the host (\`MCCL_BACKEND=native\`), an all_reduce of f32, microseconds: on GPU"
  echo "memory, on pinned host memory, the copies alone; the longer of these two over the first, which is how"
  echo "much of what the machine allows is used, and both one after the other over it:"
  printf '\n```\n%s\n```\n' "$(cat "$logs/host")"
} > docs/gpu.md
exit "$failed"
