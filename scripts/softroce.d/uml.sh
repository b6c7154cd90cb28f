# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/softroce
# User-Mode Linux: a kernel that is a plain process, with rxe built in; from the distribution's kernel source, once.

uml_packages=(ibverbs-providers rdma-core iproute2=rdma busybox-static=busybox util-linux=taskset)
uml_build_packages=(gcc=gcc libc6-dev make=make flex=flex bison=bison bc=bc xz-utils=xz bzip2=bzip2)

# A default User-Mode Linux lacks the host's files and an overlay over them, InfiniBand (which wants DMA, which only PCI
# has), rxe and its interfaces. The rest of what it has and nobody here needs costs time to build.
uml_options() {
  local option
  for option in HOSTFS DEVTMPFS TMPFS TMPFS_XATTR OVERLAY_FS SYSVIPC POSIX_MQUEUE HIGH_RES_TIMERS NET INET IPV6 UNIX \
    NETDEVICES DUMMY VETH VIRTIO_UML UML_PCI_OVER_VIRTIO INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS \
    RDMA_RXE DEBUG_INFO_NONE EXPERT; do
    echo "CONFIG_$option=y"
  done
  echo "CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID=1234"
  for option in MODULES SOUND UML_SOUND EXT4_FS REISERFS_FS ISO9660_FS AUTOFS4_FS AUTOFS_FS QUOTA WIRELESS WLAN PPP SLIP \
    TUN INPUT SERIO HID HID_SUPPORT HWMON USB_SUPPORT ETHERNET BLK_DEV_LOOP BLK_DEV_NBD MQ_IOSCHED_DEADLINE \
    MQ_IOSCHED_KYBER IOSCHED_BFQ UML_NET FTRACE IKCONFIG BSD_PROCESS_ACCT CGROUPS SWAP SUSPEND PTP_1588_CLOCK IPV6_SIT \
    EFI_PARTITION IO_URING AIO BINFMT_MISC SECCOMP COREDUMP ELF_CORE KALLSYMS MAGIC_SYSRQ DEBUG_KERNEL SCHED_DEBUG \
    INET_DIAG NETWORK_FILESYSTEMS MISC_FILESYSTEMS NLS PROC_KCORE CRYPTO_HW FW_LOADER ALLOW_DEV_COREDUMP PCI_QUIRKS \
    PCIEASPM VGA_ARB VHOST_MENU IOMMU_SUPPORT RUNTIME_TESTING_MENU LEGACY_PTYS VMAP_STACK; do
    echo "# CONFIG_$option is not set"
  done
}

# The host takes only whole sets of a process's registers. Since Intel's AMX those are larger than what User-Mode Linux
# (before it asked for the size) keeps of them: the first process would die. The rest is zero, which means unused.
uml_whole_registers() {
  cat <<'END'
static struct iovec whole_registers(int pid, unsigned long *kept)
{
	static unsigned long whole[8192];
	static struct iovec all;
	unsigned long bytes = FP_SIZE * sizeof(unsigned long);

	if (all.iov_len == 0) {
		all.iov_base = whole;
		all.iov_len = sizeof(whole);
		if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all) < 0)
			all.iov_len = bytes;
		__builtin_memset(whole, 0, sizeof(whole));
	}
	__builtin_memcpy(whole, kept, all.iov_len < bytes ? all.iov_len : bytes);
	return all;
}
END
}

# Run in the kernel's source.
uml_change_source() {
  # The one CPU goes from process to process at a tick.
  sed -i '/^config HZ/,/^$/s/default 100$/default 1000/' arch/um/Kconfig
  if grep -q 'HOST_FP_SIZE, 2696' arch/x86/um/user-offsets.c; then
    uml_whole_registers >whole_registers.c
    sed -i -e '/^int have_xstate_support;/r whole_registers.c' \
      -e 's/if (ptrace(PTRACE_SETREGSET/iov = whole_registers(pid, fp_regs);\n\t\t&/' arch/x86/um/os-Linux/registers.c
  fi
}

# Named after what is made different: with other changes it is another kernel.
uml_kernel() { echo "$cache/linux-uml-$({ uml_options && declare -f uml_whole_registers; } | cksum | cut -d' ' -f1)"; }

uml_refuses() {
  if [[ $(uname -m) != x86_64 ]]; then
    echo "there is no User-Mode Linux for $(uname -m), only for x86_64"
  elif [[ -n $cpus_asked && $cpus_asked -gt 1 ]]; then
    echo "it has one CPU, and --cpus=$cpus_asked was asked for"
  elif [[ $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0) -ge 2 ]] && ! host_may 19; then
    echo "it needs ptrace, which is forbidden here (sysctl kernel.yama.ptrace_scope)"
  elif [[ -x $(uml_kernel) ]]; then
    return 1
  elif ! has_packages; then
    echo "its kernel is built from Debian's or Ubuntu's package linux-source"
  elif [[ $(free_disk "$cache") -lt 3000 ]]; then
    echo "building its kernel takes 3000 MiB below $cache, where $(free_disk "$cache") are free"
  else
    return 1
  fi
}

uml_describes() {
  local absent
  absent=$(missing "${uml_packages[@]}" | tr '\n' ' ')
  if [[ -x $(uml_kernel) ]]; then
    printf 'User-Mode Linux, one CPU, %d MiB, %d device(s)' "$memory" "$devices"
  else
    printf 'User-Mode Linux, whose kernel has to be built: once, 7 minutes of one CPU'
  fi
  [[ -z $absent ]] || printf '; missing packages: %s' "${absent% }"
  echo
}

uml_build() {
  local package archive
  [[ ! -x $(uml_kernel) ]] || return 0 # another one has built it meanwhile
  package=$(apt-cache depends linux-source 2>/dev/null | awk '/Depends: linux-source-/ {print $2; exit}')
  if [[ -z $package ]]; then
    say "there is no package linux-source; are apt's lists there (apt-get update)?"
    return 1
  fi
  download "$package" || return 1
  archive=$(find unpacked/usr/src -name 'linux-source-*.tar.*' -type f | head -n 1)
  mkdir source && tar -C source --strip-components=1 -xf "$archive" && rm -rf unpacked || return 1
  uml_compile >compile.log 2>&1 || {
    tail -n 20 compile.log >&2
    return 1
  }
  mv source/linux "$(uml_kernel)"
}

uml_compile() (
  cd source && uml_change_source && make ARCH=um defconfig || return 1
  uml_options >>.config
  make ARCH=um olddefconfig && grep -x CONFIG_RDMA_RXE=y .config && grep -x CONFIG_HZ=1000 .config &&
    ! grep -x CONFIG_VMAP_STACK=y .config &&
    nice make ARCH=um -j"$(nproc)" linux && strip linux
)

uml_prepare() {
  need "${uml_packages[@]}" || return 1
  [[ ! -x $(uml_kernel) ]] || return 0
  need "${uml_build_packages[@]}" || return 1
  say "building the kernel"
  if ! in_cache uml_build; then
    say "not uml: its kernel could not be built"
    return 1
  fi
}

# The first thing in the guest: puts the overlay in place.
uml_write_init() {
  printf '#!/bin/bash\njob=%q\n' "$job" >"$job/init"
  cat >>"$job/init" <<'END'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs overlay /mnt
mkdir -p /mnt/upper /mnt/changes /mnt/new /mnt/host
mount -t hostfs -o / none /mnt/host
mount -o remount,ro /mnt/host
mount -t overlay -o lowerdir=/mnt/host,upperdir=/mnt/upper,workdir=/mnt/changes overlay /mnt/new
cd /mnt/new
for directory in proc sys dev; do mount --rbind "/$directory" "$directory"; done
mkdir -p dev/shm dev/pts run
mount -t tmpfs shm dev/shm
mount -t tmpfs run run
mount -t devpts pts dev/pts
mkdir -p run/pando-job
mount -t hostfs -o "$job" none run/pando-job
exec chroot . /bin/bash /run/pando-job/guest.sh
END
  chmod +x "$job/init"
}

# One of the CPUs that this process may use.
uml_cpu() {
  local range all=()
  while read -r range; do
    mapfile -t -O "${#all[@]}" all < <(seq "${range%-*}" "${range#*-}")
  done < <(awk '/^Cpus_allowed_list:/ {print $2}' /proc/self/status | tr , '\n')
  echo "${all[RANDOM % ${#all[@]}]}"
}

# A directory for the guest's memory, which is a file that is mapped, also to be executed.
uml_memory_directory() {
  local each
  for each in /dev/shm "${TMPDIR:-/tmp}" "$cache"; do
    if [[ -w $each && $(free_disk "$each") -ge $memory && ! ,$(findmnt -no OPTIONS -T "$each"), == *,noexec,* ]]; then
      echo "$each"
      return
    fi
  done
  return 1
}

uml_run() {
  local memory_directory
  if ! memory_directory=$(uml_memory_directory); then
    say "not uml: neither /dev/shm nor another place has $memory MiB for its memory (--memory)"
    decline
    return 1
  fi
  write_job hostfs "" "$@"
  uml_write_init
  # Moved about between CPUs, it takes four times as long for a system call.
  if ! TMPDIR=$memory_directory run_guest 120 taskset -c "$(uml_cpu)" "$(uml_kernel)" "mem=${memory}M" \
    "uml_dir=$job/" umid=uml rootfstype=hostfs rootflags=/ ro "init=$job/init" loglevel=4 \
    con=null con0=null,fd:1 ssl=null ssl0=null,fd:3 ssl1=null,fd:4; then
    say "not uml: the guest did not answer"
    show_console
    decline
    return 1
  fi
  guest_result
}
