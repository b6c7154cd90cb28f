# shellcheck shell=bash
# RDMA devices on network interfaces of their own; for this machine and for guests.

# make_devices 1|2: rxe0 on pando0 at 10.77.0.1 and, joined to it by a wire, rxe1 on pando1 at 10.77.1.1.
make_devices() {
  if [[ $1 == 1 ]]; then
    # ARP, so that addresses that nobody answers for are looked for, as on a real network.
    ip link add pando0 type dummy && ip link set pando0 arp on || return 1
  else
    ip link add pando0 type veth peer name pando1 || return 1
  fi
  local number
  for ((number = 0; number < $1; ++number)); do
    # 9000: RoCE takes the largest MTU that fits, which is 4096.
    ip link set "pando$number" mtu 9000 up &&
      ip address add "10.77.$number.1/24" dev "pando$number" || return 1
  done
  [[ $1 == 1 ]] || join_devices || return 1
  for ((number = 0; number < $1; ++number)); do
    rdma link add "rxe$number" type rxe netdev "pando$number" || return 1
  done
}

# Both ends of the wire are on one machine, whose kernel would take packets between them for strays. Only packets bound
# to an interface, as RoCE's are, go over the wire; sockets find the other address as they find any of the machine's own.
join_devices() {
  local number other
  for number in 0 1; do
    other=$((1 - number))
    echo 1 >"/proc/sys/net/ipv4/conf/pando$number/accept_local" &&
      ip route add "10.77.$other.1/32" dev "pando$number" src "10.77.$number.1" &&
      ip neighbour add "10.77.$other.1" dev "pando$number" nud permanent \
        lladdr "$(cat "/sys/class/net/pando$other/address")" || return 1
  done
}

# Nothing to undo is no failure.
remove_devices() {
  local number
  for number in 0 1; do
    rdma link delete "rxe$number" 2>/dev/null
    ip link delete "pando$number" 2>/dev/null
  done
  return 0
}
