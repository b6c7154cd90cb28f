# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/softroce
# A QEMU guest with the distribution's stock kernel, its root an overlay over this machine's files (9p): two ways, kvm
# and emulated.

qemu_packages=(qemu-system-x86=qemu-system-x86_64 seabios busybox-static=busybox cpio=cpio kmod=modprobe zstd=zstd
  ibverbs-providers rdma-core iproute2=rdma)
# boot/, lib/modules/ and initrd.
stock_kernel=$cache/stock-kernel

qemu_refuses() {
  if [[ $(uname -m) != x86_64 ]]; then
    echo "QEMU guests are set up for x86_64 only, this is $(uname -m)"
  elif [[ -d $stock_kernel ]]; then
    return 1
  elif ! has_packages; then
    echo "its kernel is taken from Debian's or Ubuntu's packages"
  elif [[ $(free_disk "$cache") -lt 1500 ]]; then
    echo "its kernel takes 1500 MiB below $cache, where $(free_disk "$cache") are free"
  else
    return 1
  fi
}

qemu_describes() {
  local absent
  absent=$(missing "${qemu_packages[@]}" | tr '\n' ' ')
  printf 'a QEMU guest, %s, %d CPU(s), %d MiB, %d device(s)' "$1" "$cpus" "$memory" "$devices"
  [[ -d $stock_kernel ]] || printf '; a stock kernel has to be downloaded, once'
  [[ -z $absent ]] || printf '; missing packages: %s' "${absent% }"
  echo
}

# Within another virtual machine /dev/kvm may be there and of no use: found out once after each start of the machine.
kvm_failed() { cmp -s "$cache/kvm-failed" /proc/sys/kernel/random/boot_id; }

kvm_refuses() {
  if [[ ! -e /dev/kvm ]]; then
    echo "there is no /dev/kvm: virtualisation is off, or this is a virtual machine that does not pass it on"
  elif [[ ! -r /dev/kvm || ! -w /dev/kvm ]]; then
    echo "this user may not use /dev/kvm (group kvm)"
  elif ! grep -qwE 'vmx|svm' /proc/cpuinfo; then
    echo "the processor does not offer virtualisation, although there is a /dev/kvm"
  elif kvm_failed; then
    echo "it failed before"
  else
    qemu_refuses
  fi
}

kvm_describes() { qemu_describes KVM; }
kvm_prepare() { qemu_prepare; }

kvm_run() {
  write_job 9p "$stock_kernel" "$@"
  if ! boot_qemu 60 kvm host ""; then
    say "not kvm: the guest did not answer"
    show_console
    cat /proc/sys/kernel/random/boot_id >"$cache/kvm-failed"
    decline
    return 1
  fi
  guest_result
}

emulated_refuses() { qemu_refuses; }
emulated_describes() { qemu_describes "emulated (slow)"; }
emulated_prepare() { qemu_prepare; }

emulated_run() {
  [[ -n $seconds_asked ]] || seconds=$((seconds * 4))
  write_job 9p "$stock_kernel" "$@"
  # With erms and fsrm the kernel copies by rep movsb, which is emulated byte by byte, so that even READs of 8 bytes tear.
  if ! boot_qemu 300 tcg,thread=multi max,la57=off,erms=off,fsrm=off tsc=reliable; then
    say "not qemu: the guest did not answer"
    show_console
    decline
    return 1
  fi
  guest_result
}

# boot_qemu PATIENCE ACCELERATOR CPU KERNEL-ARGUMENT
boot_qemu() {
  local output=(-device virtio-serial-pci) shared=() name descriptor=3
  for name in stdout stderr; do
    output+=(-add-fd "fd=$descriptor,set=$descriptor" -chardev "file,id=$name,path=/dev/fdset/$descriptor,append=on"
      -device "virtserialport,chardev=$name,name=$name")
    ((++descriptor))
  done
  [[ -z $out ]] || shared=(-virtfs "local,path=$out,mount_tag=out,security_model=none")
  run_guest "$1" qemu-system-x86_64 -accel "$2" -cpu "$3" -smp "$cpus" -m "$memory" -M q35 -nodefaults \
    -no-user-config -display none -no-reboot -kernel "$stock_kernel"/boot/vmlinuz-* -initrd "$stock_kernel/initrd" \
    -append "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr $4" \
    -virtfs local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$job,mount_tag=job,security_model=none" "${shared[@]}" -serial stdio "${output[@]}"
}

qemu_prepare() {
  need "${qemu_packages[@]}" || return 1
  [[ ! -d $stock_kernel ]] || return 0
  say "downloading a kernel"
  if ! in_cache get_stock_kernel; then
    say "not qemu: its kernel could not be prepared"
    return 1
  fi
}

get_stock_kernel() {
  local meta package packages file
  [[ ! -d $stock_kernel ]] || return 0
  for meta in linux-image-amd64 linux-image-generic; do # Debian, Ubuntu
    package=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-/ {print $2; exit}')
    [[ -z $package ]] || break
  done
  if [[ -z $package ]]; then
    say "there is no package linux-image-amd64 or linux-image-generic; are apt's lists there (apt-get update)?"
    return 1
  fi
  packages=("$package")
  for file in "${package/image/modules}" "${package/image/modules-extra}"; do # Ubuntu
    [[ -z $(apt-cache show "$file" 2>/dev/null) ]] || packages+=("$file")
  done
  download "${packages[@]}" || return 1
  mv unpacked kernel
  [[ -d kernel/lib ]] || ln -s usr/lib kernel/lib || return 1
  make_initrd && mv kernel "$stock_kernel"
}

# The smallest system that finds this machine's files; all other modules are loaded from those.
make_initrd() {
  local version file module tool
  version=$(basename kernel/boot/vmlinuz-*)
  version=${version#vmlinuz-}
  depmod -b kernel "$version" && mkdir -p initrd/{bin,proc,sys,dev,modules,host,changes,new} || return 1
  cp "$(command -v busybox)" initrd/bin/busybox || return 1
  for tool in sh mount insmod mkdir chroot cat; do ln -s busybox "initrd/bin/$tool" || return 1; done
  for module in virtio_pci virtio_console 9pnet_virtio 9p overlay; do
    modprobe -d "$PWD/kernel" -S "$version" --show-depends "$module" || return 1
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >modules
  while read -r file; do
    # What insmod of busybox cannot unpack.
    case $file in
      *.zst) zstd -q -d -c "$file" >"initrd/modules/$(basename "$file" .zst)" ;;
      *.xz) xz -d -c "$file" >"initrd/modules/$(basename "$file" .xz)" ;;
      *) cp "$file" initrd/modules/ ;;
    esac || return 1
    file=${file%.zst}
    echo "/modules/$(basename "$file" .xz)" >>initrd/modules/list
  done <modules
  write_initrd_init >initrd/init && chmod +x initrd/init || return 1
  (cd initrd && find . | cpio -o -H newc --quiet | gzip -1) >kernel/initrd
}

write_initrd_init() {
  cat <<'END'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for file in $(cat /modules/list); do insmod $file; done
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $options,cache=loose,ro files /host
mount -t tmpfs changes /changes
mkdir -p /changes/upper /changes/work
mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work overlay /new
for directory in proc sys dev; do mount --rbind /$directory /new/$directory; done
mkdir -p /new/dev/shm /new/dev/pts /new/run
mount -t tmpfs shm /new/dev/shm
mount -t tmpfs run /new/run
mount -t devpts pts /new/dev/pts
mkdir -p /new/run/pando-job
mount -t 9p -o $options,cache=none job /new/run/pando-job
exec chroot /new /bin/bash /run/pando-job/guest.sh
END
}
