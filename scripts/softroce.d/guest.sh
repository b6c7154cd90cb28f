#!/bin/bash
# The first process of a guest, in an overlay over this machine's files: makes the RDMA devices, runs the command and
# switches the guest off. See job.sh for what is in /run/pando-job.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 USER=root
job=/run/pando-job
exec </dev/null >/dev/console 2>&1
: >"$job/started"
file_system="" modules="" out="" devices=""
# shellcheck source=/dev/null
source "$job/settings"
# shellcheck source=devices.sh
source "$job/devices.sh"

switch_off() {
  sync
  exec busybox poweroff -f
}

# The RDMA devices, and a place for output that stays.
prepare() {
  hostname softroce
  # Made by udev elsewhere; bash needs the first for <(...).
  ln -sfn /proc/self/fd /dev/fd
  ln -sfn fd/0 /dev/stdin && ln -sfn fd/1 /dev/stdout && ln -sfn fd/2 /dev/stderr
  ip link set lo up
  ulimit -l unlimited
  ulimit -n 65536
  XDG_RUNTIME_DIR=/run/user/0
  export XDG_RUNTIME_DIR
  mkdir -p "$XDG_RUNTIME_DIR" && chmod 700 "$XDG_RUNTIME_DIR"
  if [[ -n $modules ]]; then # User-Mode Linux has all built in
    mkdir -p /lib/modules && ln -sfn "$modules/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
    modprobe -a dummy veth rdma_rxe ib_uverbs rdma_ucm || return 1
  fi
  make_devices "$devices" || return 1
  if [[ $file_system == 9p && -n $out ]]; then
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap out "$out" || return 1
  elif [[ -n $out ]]; then
    mount -t hostfs -o "$out" none "$out" || return 1
  fi
}

if ! prepare; then
  echo "it could not make its RDMA devices, or reach the output directory" >"$job/problem"
  switch_off
fi

stdout=/dev/ttyS0 stderr=/dev/ttyS1
for port in /sys/class/virtio-ports/*; do
  [[ -e $port/name ]] || continue
  case $(<"$port/name") in
    stdout) stdout=/dev/${port##*/} ;;
    stderr) stderr=/dev/${port##*/} ;;
  esac
done
[[ $stdout != /dev/tty* ]] || stty -F "$stdout" raw -echo
[[ $stderr != /dev/tty* ]] || stty -F "$stderr" raw -echo
bash "$job/command" >"$stdout" 2>"$stderr"
echo $? >"$job/exit_code"
# Waits until everything is through.
[[ $stdout != /dev/tty* ]] || stty -F "$stdout" raw -echo
[[ $stderr != /dev/tty* ]] || stty -F "$stderr" raw -echo
switch_off
