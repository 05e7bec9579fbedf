#!/usr/bin/env bash
# Several hosts on a machine with Linux's RDMA: each is a network namespace with an address of its
# own on one bridge, and has an RDMA device in software (RoCE) on another. To MCCL they are hosts of
# their own, since they share no namespace. Sourced by the checks; needs root.
#
# The kernel's RoCE lives in the first namespace only, and sends what is for the same device not
# through the network. So all devices are of the first namespace, and rules of routing make what one
# sends to another leave by its own interface, cross the bridge, and come in again by the other's:
# there a packet can be lost, late or out of order.

# The devices are roce0, roce1, …; their interfaces card0, …, which the bridge's cable0, … lead to.
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
  # Frames as large as RoCE likes them: a packet is what costs.
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

# An address of this machine's own is looked for last by what it sends, and first by what comes in.
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

# disturb SIZE NETEM...: what every card sends is treated so.
disturb() {
  local size=$1 host
  shift
  for ((host = 0; host < size; ++host)); do
    tc qdisc replace dev "card$host" root netem "$@" || return 1
  done
}

# calm SIZE: and how many packets were lost, or sent out of order, meanwhile.
calm() {
  local size=$1 host
  for ((host = 0; host < size; ++host)); do
    tc -s qdisc show dev "card$host" | sed -n "s/^ *Sent.*(/card$host: sent & /p" | head -1
    tc qdisc del dev "card$host" root
  done
}

# Tables of devices as MLX_IBV_DEVICES names them, for SIZE hosts with a device each: from every host
# to every other, or to its two neighbours only.
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
