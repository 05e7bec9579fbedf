#!/usr/bin/env bash
# How the checks start ranks, each on a host of its own (hosts.sh), and tell what became of them.
# Sourced; `work` is a folder for what the ranks say, `build` that of the C++ build.

port=31000
failed=0

# check NAME SECONDS COMMAND...: one line of the result. The limit is there so that nothing waits for
# ever: the guest's cores are emulated, and what they share with may take most of them.
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
  # Ports differ from check to check, as what a check leaves behind may keep one.
  port=$((port + 16))
  export port
}

# start_rank SHAPE RANK SIZE COMMAND...: in the background, by the table of a mesh, where all go by
# RDMA, or of a ring, where those that are no neighbours take TCP.
start_rank() {
  local shape=$1 rank=$2 size=$3 table=$work/$1-$3.json transport=rdma
  shift 3
  [[ $shape == mesh ]] || transport=auto
  # The shell becomes the rank, so that a signal to it is one to the rank.
  (
    export MCCL_RANK=$rank MCCL_WORLD_SIZE=$size MCCL_ROOT=$(host_address 0):$port MCCL_PORT_BASE=0
    export MCCL_TRANSPORT=$transport MCCL_RDMA_DEVICE=$table
    exec nsenter --net="/run/netns/host$rank" "$@"
  ) >"$work/rank$rank" 2>&1 &
}

# ranks SHAPE SIZE COMMAND...: fails when a rank does, or has not the links that it should have.
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

# Of the links that a rank's log tells of: through devices all those of a mesh, and those between
# neighbours of a ring.
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

# lose_a_rank SIGNAL SIZE: the last of so many is killed, or stopped, in mid-call: the others end
# with its name.
lose_a_rank() {
  local signal=$1 size=$2 rank status=0
  local lost=$((size - 1)) processes=()
  rm -f "$work"/rank[0-9]*
  for ((rank = 0; rank < size; ++rank)); do
    start_rank mesh "$rank" "$size" env MCCL_LIVENESS_INTERVAL=5 \
      "$build/src/cli/mccl" bench all_reduce -s 1M --no-bounds --seconds 600
    processes+=($!)
  done
  # They are in the middle of it once the last to begin has its links.
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

# until_said FILE WORDS PROCESS: for as long as the process lives.
until_said() {
  grep -Eqm1 "$2" <(tail -n +1 --pid="$3" -f "$1")
}

# Whatever the network does to uc, which sends nothing again: the ranks end well, or with an error
# that names a rank; none ends with a wrong result.
right_or_told() {
  ranks "$@" && return
  ! grep -l 'wrong elements' "$work"/rank[0-9]* &&
    grep -Eq 'failed on rank [0-9].*rank [0-9]+ is gone' "$work"/rank[0-9]* &&
    echo "note: the ranks ended with an error that names one"
}

export -f check start_rank ranks links_are_of lose_a_rank until_said right_or_told
export port work build
