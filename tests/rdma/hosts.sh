#!/usr/bin/env bash
# Simulates several hosts on a machine with Linux's RDMA. Each host is a network namespace with its
# own address on one bridge, and it has a software RDMA device (RoCE) on another bridge. MCCL treats
# them as separate hosts, since they share no namespace. Sourced by the checks; needs root.
#
# The kernel's RoCE works in the first namespace only, and its packets to the same device bypass the
# network. Therefore all devices are in the first namespace. Routing rules make packets between
# devices leave by the sender's interface, cross the bridge, and return by the receiver's interface.
# On the bridge, packets can be lost, delayed or reordered.

# The devices are roce0, roce1, …. Their interfaces are card0, …, and the bridge's ends are cable0,
# ….
rdma_address() { echo "10.9.1.$(($1 + 1))"; }
host_address() { echo "10.8.0.$(($1 + 1))"; }
mac_address() { printf '02:00:00:00:09:%02x' "$1"; }

make_hosts() {
  local size=$1 host
  ip link add roce type bridge && ip link set roce up || return 1
  ip link add lan type bridge && ip link set lan up || return 1
  for ((host = 0; host < size; ++host)); do
    make_card "$host" && make_host "$host" || return 1
  done
  route_between_cards "$size"
}

make_card() {
  local card=card$1 number=$1
  # Uses frames as large as RoCE accepts, since the cost is per packet.
  ip link add "$card" mtu 9000 address "$(mac_address "$number")" type veth \
    peer name "cable$number" mtu 9000 &&
    ip link set "cable$number" master roce up &&
    ip addr add "$(rdma_address "$number")/24" dev "$card" && ip link set "$card" up &&
    echo 1 >"/proc/sys/net/ipv4/conf/$card/accept_local" &&
    rdma link add "roce$number" type rxe netdev "$card"
}

make_host() {
  local space=host$1
  ip netns add "$space" && ip -n "$space" link set lo up &&
    ip link add "lan$1" type veth peer name eth0 netns "$space" &&
    ip link set "lan$1" master lan up &&
    ip -n "$space" addr add "$(host_address "$1")/24" dev eth0 && ip -n "$space" link set eth0 up
}

# Outgoing packets must look up the local addresses last, and incoming packets first.
route_between_cards() {
  local size=$1 from to
  ip rule add pref 100 lookup local
  for ((from = 0; from < size; ++from)); do
    ip rule add pref 1 iif "card$from" lookup local
    ip rule add pref 10 from "$(rdma_address "$from")" lookup $((1000 + from))
    ip route add 10.9.1.0/24 dev "card$from" table $((1000 + from))
    for ((to = 0; to < size; ++to)); do
      [[ $to == "$from" ]] ||
        ip neigh replace "$(rdma_address "$to")" lladdr "$(mac_address "$to")" dev "card$from" \
          nud permanent
    done
  done
  ip rule del pref 0
}

# disturb SIZE NETEM...: applies netem to the packets that every card sends.
disturb() {
  local size=$1 host
  shift
  for ((host = 0; host < size; ++host)); do
    tc qdisc replace dev "card$host" root netem "$@" || return 1
  done
}

# calm SIZE: ends the disturbance, and prints how many packets were sent, lost or reordered.
calm() {
  local size=$1 host
  for ((host = 0; host < size; ++host)); do
    tc -s qdisc show dev "card$host" | sed -n "s/^ *Sent.*(/card$host: sent & /p" | head -1
    tc qdisc del dev "card$host" root
  done
}

# device_table SHAPE SIZE: prints a table of devices in the format of MLX_IBV_DEVICES for SIZE hosts
# with one device each. In a mesh every host reaches every other; in a ring only its two neighbours.
device_table() {
  local shape=$1 size=$2 row column distance
  for ((row = 0; row < size; ++row)); do
    printf '%s[' "$([[ $row == 0 ]] && echo '[' || echo ', ')"
    for ((column = 0; column < size; ++column)); do
      distance=$(((row - column + size) % size))
      [[ $column == 0 ]] || printf ', '
      if [[ $distance == 0 || ($shape == ring && $distance != 1 && $distance != $((size - 1))) ]]; then
        printf null
      else
        printf '"roce%d"' "$row"
      fi
    done
    printf ']'
  done
  echo ']'
}

export -f make_hosts make_card make_host route_between_cards disturb calm device_table
export -f rdma_address host_address mac_address
