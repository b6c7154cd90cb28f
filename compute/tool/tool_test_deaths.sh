# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: servers and clients die at work, and servers come.

# Puts the words over and over until a load fails; its exit code.
load_for_ever() {
  local round
  for ((round = 0; round < 10000; ++round)); do
    "$programs/pando" load "$work/words" --nobulk "$@" >/dev/null || exit $?
  done
}

# ended CLIENT SINCE_MS: waits for it; it was told that a server is gone, and in time.
ended() {
  local pid=${children[$1 - 1]} code=0
  while kill -0 "$pid" 2>/dev/null; do
    (($(now_ms) - $2 < 60000)) || fail "client $1 goes on without the server"
    sleep 0.01
  done
  wait "$pid" || code=$?
  cat "$work/client-$1.err"
  [[ $code == 69 ]] || fail "client $1: exit code $code"
  grep -q UNAVAILABLE "$work/client-$1.err" || fail "client $1 was not told"
}

# Clients that are at work when a server dies get Unavailable within two seconds and end.
test_death() {
  local signal started client
  words
  awk NR%2 "$work/words" >"$work/half"
  for signal in KILL TERM; do
    # Small chunks: a tree of few words lies on both servers, too, before the first client starts. The other half of
    # the words makes its nodes split.
    start_server 1 --memory=512M --chunk=64K
    start_server 2 --memory=512M --chunk=64K
    children=()
    for client in 1 2 3; do
      run 0 load "$work/half" --tree="words $client" --key_bytes=60 --value_bytes=8
    done
    for client in 1 2 3; do
      load_for_ever --tree="words $client" 2>"$work/client-$client.err" &
      children+=($!)
    done
    sleep 1.5
    started=$(now_ms)
    stop_server 2 $signal
    for client in 1 2 3; do ended "$client" "$started"; done
    echo "clients ended $(($(now_ms) - started)) ms after SIG$signal"
    (($(now_ms) - started < death_ms)) || fail 'too late'
    run 69 scan --tree='words 1'
    says UNAVAILABLE
    # What is said to go on with is not a command that would erase another tree.
    run 69 erase --tree='words 1' --from= --to=z
    says 'the same command with --hex --from='
    says ' --to=7a goes on there'
    # A new life of the server does not pass empty memory off as the old one's nodes.
    start_server 2 --memory=512M
    run 74 scan --tree='words 1'
    says 'has started again without them'
    run 0 drop 'words 1'
    run 0 load "$work/words" --tree='words 1'
    expect_all_words 'words 1'
    # A check goes on behind a tree that it cannot read.
    run 74 check
    says "tree 'words 2' cannot be checked: "
    says "tree 'words 1': $(wc -l <"$work/sorted") keys"
    says '2 of 3 trees could not be checked: '
    run 74 check --json
    expect_json 'sorted((tree["tree"], tree["ok"], "error" in tree) for tree in document["trees"])' \
      "[('words 1', True, False), ('words 2', False, True), ('words 3', False, True)]"
    expect_json 'document["ok"]' False
    stop_server 1 TERM
    stop_server 2 TERM
  done
}

# Servers that come make room, and take nothing away; what ends well over a tree that has lost a server says so.
test_members() {
  local id code round
  words
  # Started together with who needs them.
  for round in 1 2 3; do
    for id in 1 2; do
      "$programs/pando-memory" --server_id=$id --memory=256M --exit_with_parent 2>"$work/server-$id.log" &
      servers[$id]=$!
    done
    run 0 load "$work/words" --tree=early
    stop_server 1 KILL
    stop_server 2 KILL
  done

  start_server 1 --memory=256M
  run 0 load "$work/words" --tree=old
  start_server 2 --memory=512M
  run 0 put new-key 7 --tree=old
  run 0 delete new-key --tree=old
  run 0 load "$work/words" --tree=old --nobulk
  run 0 check --tree=old --quiet-tree
  expect_all_words old
  run 0 load "$work/words" --tree=both

  # The keys in order: what is on the server that dies is behind the load already, and something is. The load is stopped
  # meanwhile, so that it cannot end first, however fast it is.
  "$programs/pando" load "$work/sorted" --tree=sorted --nobulk --sessions=1 >"$work/out" 2>"$work/err" &
  children=($!)
  until kill -STOP "${children[0]}" &&
    [[ $("$programs/pando" scan --tree=sorted --limit=3000 --timeout_ms=1000 2>/dev/null | wc -l) == 3000 ]]; do
    kill -CONT "${children[0]}" || fail "the load has ended early"
    sleep 0.01
  done
  stop_server 2 KILL
  kill -CONT "${children[0]}"
  code=0
  wait "${children[0]}" || code=$?
  children=()
  [[ $code == 69 ]] || fail "a load over a tree that lost a server: exit code $code"
  says UNAVAILABLE
  run 69 check --tree=sorted
  says UNAVAILABLE
  run 69 scan --limit=1 --tree=sorted
  says UNAVAILABLE
  expect_all_words old
  run 0 check --tree=old

  # It comes back empty, and another one comes.
  start_server 2 --memory=512M
  start_server 3 --memory=512M
  run 74 get "$(head -1 "$work/sorted")" --tree=sorted
  says 'has started again without them'
  says DATA_LOSS
  expect_all_words old
  for tree in sorted both; do
    run 0 drop $tree
    run 0 load "$work/words" --tree=$tree
    expect_all_words $tree
  done
  # One that does not answer keeps nobody from the others.
  kill -STOP "${servers[3]}"
  run 0 put key 1 --tree=old
  says 'connected without one'
  kill -CONT "${servers[3]}"

  # After a kill nothing is given out twice: trees of the new life are not taken for those that were dropped.
  stop_server 1 KILL
  start_server 1 --memory=256M
  for round in 1 2 3; do
    run 0 load "$work/words" --tree=anew
    expect_all_words anew
    run 0 drop anew
  done
}

# A client that is killed at work takes nothing with it but its locks.
test_client_death() {
  start_server 1 --memory=512M
  words
  local round victim
  run 0 create --tree=words --key_bytes=60 --value_bytes=8
  for round in 1 2 3 4 5; do
    set -m  # in a process group, so that the client and who starts it again end together
    load_for_ever --tree=words --sessions=2 2>/dev/null &
    set +m
    victim=-$!
    children=("$victim")
    sleep 0.3
    kill -KILL "$victim"
    wait "${victim#-}" 2>/dev/null || true
    run 0 stats
    says 'peers_gone'
    run 0 create --tree="other $round"
    run 0 put key value --tree="other $round"
  done
}
