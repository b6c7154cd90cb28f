# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # variables of scripts/softroce
# What all ways share: messages, packages, the size of this machine, and the end of processes that were started.

readonly no_place=125 # exit code: no way works here
readonly no_result=126 # the guest had begun with the command, and has left no exit code

declined=""
# Before a way's `run` returns: nothing was run, the next way may try.
decline() { declined=yes; }

say() { echo "softroce: $*" >&2; }

is_root() { [[ $(id -u) == 0 ]]; }

has_packages() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# missing PACKAGE[=COMMAND]...: what is not there, as names of Debian's packages. Where there are no such packages, it is
# the command that counts.
missing() {
  local each package
  for each in "$@"; do
    package=${each%%=*}
    if has_packages; then
      [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || echo "$package"
    elif [[ $each == *=* ]] && ! command -v "${each#*=}" >/dev/null; then
      echo "$package"
    fi
  done
}

# need PACKAGE[=COMMAND]...: installs what is missing.
need() {
  local absent as_root=()
  absent=$(missing "$@" | tr '\n' ' ')
  absent=${absent% }
  [[ -n $absent ]] || return 0
  if ! has_packages; then
    say "this is neither Debian nor Ubuntu; install what those call: $absent"
    return 1
  fi
  say "missing packages: $absent"
  if ! is_root; then
    if ! command -v sudo >/dev/null; then
      say "there is no sudo here; run as root: apt-get install $absent"
      return 1
    fi
    say "installing them needs root: sudo apt-get install (it may ask for your password)"
    as_root=(sudo)
  fi
  # /usr/bin/env: the variable has to reach apt-get through sudo.
  local install=("${as_root[@]}" /usr/bin/env DEBIAN_FRONTEND=noninteractive apt-get)
  # shellcheck disable=SC2086  # a list
  if ! "${install[@]}" update -q >&2 ||
    ! "${install[@]}" install -q -y --no-install-recommends $absent >&2; then
    say "they could not be installed"
    return 1
  fi
}

# download PACKAGE...: unpacks them into unpacked/.
download() {
  local file
  if ! apt-get download -q "$@" >download.log 2>&1; then
    tail download.log >&2
    return 1
  fi
  for file in ./*.deb; do dpkg -x "$file" unpacked || return 1; done
  rm -f ./*.deb
}

# MiB of memory that are free, for this process too if it is confined to less.
free_memory() {
  local free limit
  free=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  if [[ $limit =~ ^[0-9]+$ && $((limit >> 20)) -lt $free ]]; then
    free=$((limit >> 20))
  fi
  echo "$free"
}

# clamp NUMBER LOWEST HIGHEST
clamp() {
  if [[ $1 -lt $2 ]]; then
    echo "$2"
  elif [[ $1 -gt $3 ]]; then
    echo "$3"
  else
    echo "$1"
  fi
}

# Defaults of what was not asked for. `cpus_asked` stays empty if CPUs were not.
fit_to_machine() {
  cpus_asked=$cpus
  cpus=${cpus:-$(clamp "$(nproc)" 1 4)}
  memory=${memory:-$(clamp "$(($(free_memory) / 2))" 512 4096)}
  seconds_asked=$seconds
  if [[ -z $seconds ]]; then
    seconds=600
    [[ $(nproc) -ge 4 ]] || seconds=1200
  fi
}

# MiB that are free below a directory, or below the nearest one above it that exists.
free_disk() {
  local directory=$1
  while [[ ! -d $directory ]]; do directory=$(dirname "$directory"); done
  df -Pm -- "$directory" | awk 'NR == 2 {print $4}'
}

# in_cache FUNCTION: runs it with the cache for itself, in a new directory below it that is removed afterwards. A second
# one waits for the first.
in_cache() {
  mkdir -p "$cache"
  (
    # Not -e: that has no effect within a condition, so the functions say themselves where they fail.
    flock -n 9 || say "waiting for another scripts/softroce, which is preparing"
    flock 9
    work=$(mktemp -d "$cache/work.XXXXXX") || exit 1
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    cd "$work" && "$1"
  ) 9>"$cache/lock"
}

group="" # process group of the command, or of the guest

# Ends what was started: all of its processes.
end_group() {
  local tries
  [[ -n $group ]] || return 0
  if ! kill -TERM -- "-$group" 2>/dev/null && [[ $'\n'$(jobs -p)$'\n' == *$'\n'"$group"$'\n'* ]]; then
    kill -TERM "$group" 2>/dev/null || true # it has no group yet
  fi
  for ((tries = 0; tries < 40; ++tries)); do
    kill -0 -- "-$group" 2>/dev/null || break
    sleep 0.05
  done
  kill -KILL -- "-$group" 2>/dev/null || true
  group=""
}

# A directory for what passes between this script and a guest, and the end of everything when the script ends.
begin_job() {
  # Its name is handed to kernels and in mount options.
  [[ ${TMPDIR:-/tmp} =~ ^[A-Za-z0-9_./-]+$ ]] || TMPDIR=/tmp
  job=$(mktemp -d "$(realpath "${TMPDIR:-/tmp}")/pando-softroce.XXXXXX")
  trap end_job EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

end_job() {
  trap '' HUP INT TERM
  end_group
  host_undo
  rm -rf "$job"
}
