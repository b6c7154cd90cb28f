# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/softroce
# This machine's own rdma_rxe.

host_changed=0      # devices were made
host_loaded_module=0

host_has_module() { [[ -d /sys/module/rdma_rxe ]]; }

# host_may CAPABILITY-BIT
host_may() {
  local bits
  bits=$(awk '/^CapEff:/ {print $2}' /proc/self/status)
  (((16#$bits >> $1) & 1))
}

# All `refuses` functions: true, with the reason on standard output, where the way cannot work.
host_refuses() {
  local limit kernel
  kernel=$(uname -r)
  limit=$(ulimit -l)
  if ! host_has_module && ! modprobe -n -q rdma_rxe 2>/dev/null; then
    echo "this machine's kernel $kernel has no module rdma_rxe (Ubuntu: in linux-modules-extra-$kernel)"
  elif ! is_root; then
    echo "making RDMA devices needs root (sudo scripts/softroce)"
  elif ! host_may 12; then # CAP_NET_ADMIN
    echo "this root may not make network interfaces: it is confined to a container"
  elif ! host_may 14 && [[ $limit != unlimited && $limit -lt 1048576 ]]; then # CAP_IPC_LOCK: no limit
    echo "only $limit KiB of memory may be locked, and RDMA locks all that it uses: ulimit -l unlimited"
  elif ip link show pando0 >/dev/null 2>&1; then
    echo "there is an interface pando0: of another run, or of a killed one (scripts/softroce clean)"
  elif rdma link show rxe0/1 >/dev/null 2>&1 || rdma link show rxe1/1 >/dev/null 2>&1; then
    echo "there is an RDMA device rxe0 or rxe1 already"
  elif [[ -n $(ip -4 route show root 10.77.0.0/16 2>/dev/null) ]]; then
    echo "this machine has other use for the addresses 10.77.0.0/16"
  else
    return 1
  fi
}

host_describes() { echo "this machine's own rdma_rxe (kernel $(uname -r)), on $devices device(s)"; }

host_prepare() {
  need ibverbs-providers rdma-core kmod=modprobe iproute2=rdma || return 1
  host_has_module && return 0
  local answer
  if ! answer=$(modprobe rdma_rxe 2>&1); then
    say "not host: the kernel refused the module rdma_rxe: $answer"
    say "(with Secure Boot it takes modules that are signed for it only; mokutil --sb-state)"
    return 1
  fi
  host_loaded_module=1
}

host_run() {
  host_changed=1
  modprobe -q -a ib_uverbs rdma_ucm 2>/dev/null || true
  if ! make_devices "$devices"; then
    say "not host: the RDMA device could not be made"
    host_undo
    decline
    return 1
  fi
  local each
  for each in /sys/class/infiniband_verbs/uverbs*; do
    if [[ -e $each && $(<"$each/ibdev") == rxe* && ! -e /dev/infiniband/${each##*/} ]]; then
      say "not host: there is no /dev/infiniband/${each##*/}; in a container it has to be handed in"
      host_undo
      decline
      return 1
    fi
  done
  # The shell gives what runs in the background no input unless told to.
  setsid timeout -k 5 "$seconds" env "PANDO_SOFTROCE_OUT=$out" "${variables[@]}" "$@" <&0 &
  group=$!
  wait "$group"
}

host_undo() {
  [[ $host_changed == 0 ]] || remove_devices
  [[ $host_loaded_module == 0 ]] || modprobe -q -r rdma_rxe 2>/dev/null || true
  host_changed=0 host_loaded_module=0
}

# What a run left that was killed before it could undo it.
host_clean() {
  ip link show pando0 >/dev/null 2>&1 || return 0
  if ! is_root; then
    say "pando0 is still there; removing it needs root: sudo scripts/softroce clean"
    return 0
  fi
  remove_devices
}
