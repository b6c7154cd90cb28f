# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/softroce
# A command in a guest: what goes in, waiting for it, and what comes back. Both pass through files in $job, which is
# /run/pando-job in the guest.

# write_job FILE-SYSTEM MODULES COMMAND...: FILE-SYSTEM is hostfs or 9p, MODULES where lib/modules of its kernel is, or
# empty.
write_job() {
  local each
  rm -f "$job/started" "$job/exit_code" "$job/problem"
  cp "$rooms/guest.sh" "$rooms/devices.sh" "$job/"
  printf '%s=%q\n' file_system "$1" modules "$2" out "$out" devices "$devices" >"$job/settings"
  shift 2
  {
    # What a login would set, for whoever finds his files by it.
    printf 'export HOME=%q\n' "$HOME"
    printf 'export PANDO_SOFTROCE_OUT=%q\n' "$out"
    for each in "${variables[@]}"; do printf 'export %q\n' "$each"; done
    printf 'cd %q || exit %d\n' "$PWD" "$no_place"
    printf 'exec timeout -k 5 %d' "$seconds"
    printf ' %q' "$@"
    printf '\n'
  } >"$job/command"
}

# run_guest SECONDS COMMAND...: runs a guest, whose standard output and error are its file descriptors 3 and 4, and
# whose console is 1. True if it answered, within SECONDS.
run_guest() {
  local pipes deadline=$((SECONDS + $1)) bound=$((seconds + $1 + 30))
  shift
  # Not the terminal itself: User-Mode Linux would make it raw, without Ctrl-C.
  exec 3> >(exec cat)
  pipes=$!
  exec 4> >(exec cat >&2)
  pipes+=" $!"
  setsid timeout -k 5 "$bound" "$@" </dev/null >"$job/console" 2>&1 &
  group=$!
  exec 3>&- 4>&-
  { # without the shell's word on how it ended
    while [[ ! -e $job/started ]] && kill -0 "$group" && ((SECONDS < deadline)); do
      sleep 0.05
    done
    [[ -e $job/started ]] || kill -TERM "$group" || true
    wait "$group" || true
  } 2>/dev/null
  end_group
  # shellcheck disable=SC2086  # two
  wait $pipes || true
  [[ -e $job/started ]]
}

# The exit code that the guest left.
guest_result() {
  if [[ -s $job/exit_code ]]; then
    return "$(<"$job/exit_code")"
  fi
  if [[ -s $job/problem ]]; then
    say "the guest: $(<"$job/problem")"
    show_console
    return "$no_place"
  fi
  say "the guest ended without an exit code; it had $memory MiB (--memory) and the command $seconds s (--timeout)"
  show_console
  return "$no_result"
}

show_console() {
  say "the end of its console:"
  tail -n 20 "$job/console" >&2 || true
}
