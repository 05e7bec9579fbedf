#!/usr/bin/env bash
# Runs everything that needs GPUs and writes build/gpu.md: test results, versions, figures. PYTHON
# names the interpreter that has mccl and a torch with CUDA.
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
# Runs PROGRAM and records the lines of its output that match PATTERN. If it fails, so does the run.
figures() { # NAME PATTERN PROGRAM...
  local name=$1 pattern=$2
  shift 2
  launch "$@" >"$logs/$name.log"
  local status=$?
  grep -E "$pattern" "$logs/$name.log" | tee "$logs/$name"
  [ "$status" -eq 0 ] && return
  failed=1
  echo "$* ended with $status:" >&2
  tail -30 "$logs/$name.log" >&2
}
"$python" -m pytest -q -p no:cacheprovider tests/gpu --ignore tests/gpu/torch_suite | tee "$logs/tests"
failed=${PIPESTATUS[0]}
if [ "$gpus" -gt 1 ]; then
  tests/gpu/torch_suite/run.sh "$python" "$logs/suite" || failed=1
fi
launch examples/ddp_digits.py --device cuda --epochs 10 | grep -E '^(ok|FAIL)' | tee "$logs/digits"
[ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
if [ "$gpus" -gt 1 ]; then
  figures graphs '^(torch|all_reduce| +[0-9b])' bench/gpu/collectives.py --calls all_reduce --dtypes bf16 --ways graph
  figures calls '^(torch|[a-z_]+ of| +[0-9b])' bench/gpu/collectives.py
  figures host_time '^host' bench/gpu/host_time.py
  figures transformer '^(ms|DDP|FSDP2|forward|  in)' bench/gpu/transformer.py
fi
figures host '^ +[0-9b]' bench/gpu/through_host.py
{
  echo "# On GPUs"
  echo
  echo "Written by \`tests/gpu/run.sh\` (\`make test-gpu\`) on $(date -u +%Y-%m-%d): $gpus GPUs, $(nproc) cores."
  echo
  echo "Tests: $(tail -1 "$logs/tests")"
  echo
  if [ "$gpus" -gt 1 ]; then
    echo "PyTorch's own tests of torch.distributed that it runs by NCCL, on 2 ranks (why tests are skipped or"
    echo "left out is in \`tests/gpu/torch_suite/gpu_reasons.py\`): $(tail -1 "$logs/suite")"
    echo
  fi
  echo "The digits, trained by DistributedDataParallel on the GPUs:"
  printf '\n```\n%s\n```\n' "$(cat "$logs/digits")"
  if [ "$gpus" -gt 1 ]; then
    echo
    echo "An all_reduce of bf16 in CUDA graphs, microseconds, medians of one run (\`MCCL_BACKEND=cuda\`,"
    echo "NCCL, torch's symmetric memory; the last column is the first over the second):"
    printf '\n```\n%s\n```\n' "$(cat "$logs/graphs")"
    echo
    echo "Every call that the kernels do, in CUDA graphs and enqueued one by one (\`bench/gpu/collectives.py\`):"
    printf '\n```\n%s\n```\n' "$(cat "$logs/calls")"
    echo
    echo "What a call costs the host, from Python (\`bench/gpu/host_time.py\`). Torch alone is a group of its"
    echo "\`fake\` backend, whose calls return at once; a call of nothing launches no kernel:"
    printf '\n```\n%s\n```\n' "$(cat "$logs/host_time")"
    echo
    echo "A transformer (\`bench/gpu/transformer.py\`): a step of training by DDP and FSDP2, and a"
    echo "tensor-parallel forward with two sums a layer, by MCCL (\`auto\`) and NCCL; the last column is the"
    echo "first over the second:"
    printf '\n```\n%s\n```\n' "$(cat "$logs/transformer")"
  fi
  echo
  echo "The path through the host (\`MCCL_BACKEND=native\`), an all_reduce of f32, microseconds: on GPU"
  echo "memory, on pinned host memory, the copies alone; the longer of these two over the first, which is how"
  echo "much of what the machine allows is used, and both one after the other over it:"
  printf '\n```\n%s\n```\n' "$(cat "$logs/host")"
} > build/gpu.md
exit "$failed"
