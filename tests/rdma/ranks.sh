#!/usr/bin/env bash
# Starts the ranks of the checks, each on its own host (hosts.sh), and reports how they end. To be
# sourced. `work` is a folder for the output of the ranks, and `build` the folder of the C++ build.

port=31000
failed=0

# check NAME SECONDS COMMAND...: runs a check and prints one line. The time limit ensures that no
# check hangs. The guest's cores are emulated and may get little of the host's time.
check() {
  local name=$1 limit=$2 begun=$SECONDS
  shift 2
  if timeout -k 5 "$limit" bash -c '"$@"' - "$@" >"$work/log" 2>&1 </dev/null; then
    echo "ok      $name ($((SECONDS - begun)) s)"
  else
    echo "FAILED  $name (status $?, $((SECONDS - begun)) s)"
    tail -n 25 "$work/log" | cut -c 1-400 | sed 's/^/        /'
    failed=1
  fi
  sed -n 's/^note: /        /p' "$work/log"
  # Each check uses other ports, since processes that an earlier check left may hold some.
  port=$((port + 16))
  export port
}

# start_rank SHAPE RANK SIZE COMMAND...: starts a rank in the background. In a mesh all pairs use
# RDMA; in a ring, pairs that are not neighbours use TCP.
start_rank() {
  local shape=$1 rank=$2 size=$3 table=$work/$1-$3.json transport=rdma
  shift 3
  [[ $shape == mesh ]] || transport=auto
  # exec makes the shell become the rank, so that signals to it reach the rank.
  (
    export MCCL_RANK=$rank MCCL_WORLD_SIZE=$size MCCL_ROOT=$(host_address 0):$port MCCL_PORT_BASE=0
    export MCCL_TRANSPORT=$transport MCCL_RDMA_DEVICE=$table
    exec nsenter --net="/run/netns/host$rank" "$@"
  ) >"$work/rank$rank" 2>&1 &
}

# ranks SHAPE SIZE COMMAND...: runs a job. Fails if a rank fails or has not the expected links.
ranks() {
  local shape=$1 size=$2 rank status=0
  shift 2
  rm -f "$work"/rank[0-9]*
  local processes=()
  for ((rank = 0; rank < size; ++rank)); do
    start_rank "$shape" "$rank" "$size" "$@"
    processes+=($!)
  done
  for ((rank = 0; rank < size; ++rank)); do
    wait "${processes[rank]}" && continue
    echo "rank $rank ended with $?:"
    tail -n 20 "$work/rank$rank"
    status=1
  done
  for ((rank = 0; rank < size && status == 0; ++rank)); do
    links_are_of "$shape" "$rank" "$size" || status=1
  done
  return $status
}

# links_are_of SHAPE RANK SIZE: checks the links in a rank's log. All links of a mesh must use
# devices, and so must those between neighbours of a ring.
links_are_of() {
  local shape=$1 rank=$2 size=$3 log=$work/rank$2 beside="[0-9]+"
  [[ $shape == mesh ]] || beside="($(((rank + 1) % size))|$(((rank + size - 1) % size)))"
  if ! grep -Eq "link [0-9]+, (to|from) rank $beside \(.*: rdma" "$log"; then
    echo "rank $rank has no link by rdma:"
    grep -E 'link [0-9]+,' "$log" | head
    return 1
  fi
  if grep -Eq "link [0-9]+, (to|from) rank $beside \(.*: tcp" "$log"; then
    echo "rank $rank has links by tcp where there are devices:"
    grep -E 'no link to rank|: tcp' "$log" | head
    return 1
  fi
}

# lose_a_rank SIGNAL SIZE: kills or stops the last of SIZE ranks in the middle of a call. The others
# must end with an error that names it.
lose_a_rank() {
  local signal=$1 size=$2 rank status=0
  local lost=$((size - 1)) processes=()
  rm -f "$work"/rank[0-9]*
  for ((rank = 0; rank < size; ++rank)); do
    start_rank mesh "$rank" "$size" env MCCL_LIVENESS_INTERVAL=5 \
      "$build/src/cli/mccl" bench all_reduce -s 1M --no-bounds --seconds 600
    processes+=($!)
  done
  # All ranks are in the call once the last one has its links.
  until_said "$work/rank$lost" 'link 1, .*rdma' "${processes[lost]}"
  kill "-$signal" "${processes[lost]}"
  for ((rank = 0; rank < lost; ++rank)); do
    wait "${processes[rank]}" && { echo "rank $rank ended well"; status=1; }
    grep -q "rank $lost" "$work/rank$rank" || { echo "rank $rank does not name it"; status=1; }
    tail -n 3 "$work/rank$rank"
  done
  kill -KILL "${processes[lost]}" 2>/dev/null
  return $status
}

# until_said FILE WORDS PROCESS: waits until the words appear in the file or the process ends.
until_said() {
  grep -Eqm1 "$2" <(tail -n +1 --pid="$3" -f "$1")
}

# right_or_told SHAPE SIZE COMMAND...: uc does not retransmit. The ranks must end well, or with an
# error that names a rank, but never with a wrong result.
right_or_told() {
  ranks "$@" && return
  ! grep -l 'wrong elements' "$work"/rank[0-9]* &&
    grep -Eq 'failed on rank [0-9].*rank [0-9]+ is gone' "$work"/rank[0-9]* &&
    echo "note: the ranks ended with an error that names one"
}

export -f check start_rank ranks links_are_of lose_a_rank until_said right_or_told
export port work build
