# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: manual pages, and completion in shells.

# completes EXPECTED WORD...: what the shell offers for the last word of `pando WORD...`, in any order.
completes() {
  local expected=$1
  shift
  COMP_WORDS=(pando "$@")
  COMP_CWORD=$#
  COMPREPLY=()
  _pando
  [[ $(printf '%s\n' "${COMPREPLY[@]}" | sort) == "$(tr ' ' '\n' <<<"$expected" | sort)" ]] ||
    fail "pando $*: offers '${COMPREPLY[*]}', not '$expected'"
}

test_shells() {
  local share=$programs/../share page command
  # Made with the program, and of the program that it is.
  mkdir "$work/man"
  run 0 help --man_directory="$work/man"
  diff -r "$work/man" "$share/man/man1" || fail 'the manual pages are of another program'
  run 2 help --man_directory="$work/none"
  says 'cannot write'
  run 2 help get --man_directory="$work/man"
  for page in "$work"/man/*.1; do
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" >"$work/out" 2>"$work/err" || fail "man $page"
    [[ ! -s $work/err ]] || fail "man warns of $page"
    grep -q '^EXIT STATUS' "$work/out" || fail "$page has no exit codes"
  done
  LC_ALL=C.UTF-8 MANWIDTH=80 man -l "$work/man/pando-scan.1" >"$work/out"
  says '--format=raw|tsv|hex|json'
  says 'tsv   the same, and \t, \n, \r, \\ for tabs'

  run 0 completion bash
  cmp "$work/out" "$share/bash-completion/completions/pando" || fail 'the completion is of another program'
  run 2 completion fish
  says "shells are bash and zsh, not 'fish'"
  shellcheck -s bash "$share/bash-completion/completions/pando" || fail 'shellcheck'
  # shellcheck disable=SC1091  # made by the build
  source "$share/bash-completion/completions/pando"
  completes 'scan stats' s
  completes 'dump' du
  completes 'raw tsv hex json' scan --format = ''
  completes 'raw tsv hex json' scan --format =
  completes 'lines' load --format = li
  completes 'shm verbs' get --fabric = ''
  completes 'shm verbs' --fabric = ''
  completes 'get' --fabric = verbs ge
  completes '--limit=' scan --tree = words --li
  completes '' get --li
  completes '--nobulk' restore x --no
  completes '--watch' stats --json --w
  completes 'bash zsh' completion ''
  completes 'get' help ge
  completes '' get ''
  completes '--version' --ver
  touch "$work/words.dump"
  mkdir "$work/words.directory"
  completes "$work/words.directory $work/words.dump" restore "$work/words."
  completes "$work/words.directory" scan --registry = "$work/words."
  COMP_WORDS=(pando '') COMP_CWORD=1
  _pando
  local commands=("${COMPREPLY[@]}")
  [[ ${#commands[@]} -gt 15 ]] || fail "only ${#commands[@]} commands"
  for command in "${commands[@]}"; do
    COMP_WORDS=(pando "$command" --) COMP_CWORD=2
    _pando
    [[ " ${COMPREPLY[*]} " == *' --help '* ]] || fail "no flags of $command"
  done

  run 0 completion zsh
  cmp "$work/out" "$share/zsh/vendor-completions/_pando" || fail 'the completion is of another program'
  grep -q '^#compdef pando$' "$work/out" || fail 'zsh will not find it'
  if command -v zsh >/dev/null; then zsh -n "$work/out" || fail 'zsh does not take it'; fi
}
