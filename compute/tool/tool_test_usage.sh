# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: command lines, and what they are told.

test_usage() {
  run 2
  run 2 frobnicate
  says "there is no command 'frobnicate'"
  run 2 get
  says 'takes 1 argument'
  run 2 get a b
  run 2 get a --colour=red
  says 'no flag --colour'
  run 2 trees --port=0
  says '--port is 1 to 255, not 0'
  run 2 doctor --gid_index=-2
  says '--gid_index is 0 to 255'
  run 2 doctor --litmus --mtu=1500
  says '--mtu is 256, 512, 1024, 2048 or 4096 bytes'
  run 2 scan --limit=many
  run 2 load x --key_bytes=256
  # Flags that mean nothing to a command.
  run 2 get a --limit=3
  says "--limit means nothing to 'get'"
  run 2 scan --json=false --seconds=2
  says 'means nothing'
  run 2 trees --tree=words
  says "--tree means nothing to 'trees'"
  run 2 help get --registry=x
  says "--registry means nothing to 'help'"
  run 2 put a -5
  says "if '-5' is an argument, put -- before it"
  run 0 --help
  says 'Exit codes'
  says '  74  damaged or lost data'
  local command tried=0
  while read -r command _; do
    run 0 help "$command"
    says "pando $command"
    cp "$work/out" "$work/help"
    run 0 "$command" --help
    cmp "$work/out" "$work/help" || fail "$command --help is not help $command"
    tried=$((tried + 1))
  done < <("$programs/pando" --help | sed -n 's/^  \([a-z]\+\)  *.*  .*/\1/p')
  ((tried > 15)) || fail "only $tried commands were tried"
  run 2 help frobnicate
  says "there is no command 'frobnicate'"
  run 0 --version
  run 69 trees
  says 'pando-memory'
  unset PANDO_REGISTRY XDG_RUNTIME_DIR
  run 2 trees
  says '--registry'
  run 0 doctor
  says '[ok]'
  run 0 help
  says 'Exit codes'

  # A bug ends in 70, not in a signal.
  export PANDO_REGISTRY=$work/registry
  start_server 1 --memory=64M
  kill -STOP "${servers[1]}"
  local code=0
  "$programs/pando" trees >/dev/null 2>"$work/err" &
  children=($!)
  sleep 0.3
  kill -ABRT "${children[0]}"
  wait "${children[0]}" || code=$?
  kill -CONT "${servers[1]}"
  [[ $code == 70 ]] || fail "exit code $code after an abort"
  says 'this is a bug of pando'
}
