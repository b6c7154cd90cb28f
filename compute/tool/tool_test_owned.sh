# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: owned trees, whose owners are killed.

# no_logs: whoever owned keys has left nothing in the servers' memory.
no_logs() {
  run 0 stats
  [[ $(awk '$1 == "extents" {sum += $2} END {print sum + 0}' "$work/out") == 0 ]] || fail 'logs are left'
}

# start_writer TREE: a compute server that puts and erases; what was acknowledged is in $work/acknowledged.
start_writer() {
  : >"$work/acknowledged"
  "$programs/owned_writer" "$PANDO_REGISTRY" "$1" >"$work/acknowledged" 2>"$work/writer.err" &
  children=($!)
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    (($(wc -l <"$work/acknowledged") < 2000)) || return 0
    kill -0 "${children[0]}" 2>/dev/null || break
    sleep 0.05
  done
  fail "the writer: $(cat "$work/writer.err")"
}
kill_writer() {
  kill -KILL "${children[0]}"
  wait "${children[0]}" 2>/dev/null || true
  children=()
}
# expect_acknowledged TREE: all that the writer was told holds, to the key.
expect_acknowledged() {
  run 0 scan --tree="$1" --values
  awk '
    FNR == NR { there[$1] = $2; next }
    $1 == "put" { value[$2] = $3 }
    $1 == "erasing" { delete value[$2] }
    $1 == "erased" { gone[$2] }
    END {
      for (key in value) { ++puts; if (there[key] != value[key]) { print "lost", key; bad = 1 } }
      for (key in gone) if (key in there) { print "came back", key; bad = 1 }
      print puts " writes of the dead hold"
      exit bad
    }' "$work/out" <(grep -E '^[a-z]+ [0-9]+-[0-9]+( [0-9]+)?$' "$work/acknowledged") >"$work/verdict" ||
    fail "$(head -5 "$work/verdict")"
  cat "$work/verdict"
}

# Owned trees, of which every process that works on them owns the keys for a while; some are killed.
test_owned() {
  start_server 1 --memory=256M
  start_server 2 --memory=256M
  words
  run 2 create --mode=mine
  says '--mode is shared or owned'
  run 2 create --mode=owned --key_bytes=255
  says 'at most 240 bytes'
  run 0 create --mode=owned --key_bytes=60 --value_bytes=20
  run 1 create --key_bytes=60 --value_bytes=20
  says 'exists and is owned'
  run 0 create --tree=shared
  run 0 trees
  grep -q '^default .* owned$' "$work/out" || fail 'trees does not show the mode'
  grep -q '^shared .* shared$' "$work/out" || fail 'trees does not show the mode'
  no_logs
  run 0 ranges
  says nobody
  run 1 ranges --tree=shared
  says 'is shared: nobody owns its keys'
  run 0 members
  says 'no compute server owns keys'
  run 1 get key
  says NOT_FOUND
  run 0 put key value
  run 0 get key
  prints value
  run 0 delete key
  run 1 delete key
  says NOT_FOUND
  run 0 put key value
  run 0 erase --from=k --to=l
  prints 'erased 1 keys'
  run 1 get key
  run 0 flush
  says 'everything is in its leaf'
  run 0 flush --tree=shared
  says 'nothing to flush'
  no_logs

  run 0 load "$work/words" --tree=words --mode=owned
  expect_all_words words
  run 0 load "$work/words" --tree=words --nobulk
  expect_all_words words
  # Into a tree that has keys, in whatever order these come.
  seq 20000 29999 >"$work/sorted_keys"
  seq 39999 -1 20000 | awk '{print $1 "\t" "new"}' >"$work/unsorted"
  run 0 load "$work/sorted_keys" --tree=both --value_bytes=8 --mode=owned
  run 0 load "$work/unsorted" --tree=both --format=tsv --progress
  says 'loaded 20000 keys (100 %), '
  run 0 scan --tree=both --values
  cmp "$work/out" <(seq 20000 39999 | sed 's/$/\tnew/') || fail 'unsorted records into an owned tree that has keys'
  run 0 load "$work/sorted_keys" --tree=both
  run 0 scan --tree=both --values
  cmp "$work/out" <(seq 1 10000 | awk '{print $1 + 19999 "\t" $1}'; seq 30000 39999 | sed 's/$/\tnew/') ||
    fail 'sorted records into an owned tree that has keys'
  run 1 load "$work/words" --tree=words --mode=shared
  says 'has the other --mode'
  run 0 check --tree=words --quiet-tree
  says "$(wc -l <"$work/sorted") keys"
  no_logs

  # Others ask a compute server that lives, and take over from one that was killed, whoever comes first.
  local first
  for first in scan get flush recover check drop; do
    run 0 create --tree=killed --mode=owned --key_bytes=20 --value_bytes=20
    start_writer killed
    run 0 get 3-0 --tree=killed
    prints 0
    run 0 ranges --tree=killed --json
    says '"compute_server"'
    run 0 members
    says 'at work'
    run 1 flush --tree=killed
    says 'belong to compute servers that are at work'
    run 0 check --tree=killed
    kill_writer
    run 0 members --json
    says '"ended": true'
    case $first in
      scan | drop) ;;
      get) run 0 get 3-0 --tree=killed ;;
      recover)
        run 0 recover
        says 'nothing is left of 1 compute servers that had ended; this command took over 1 ranges'
        no_logs
        run 0 recover
        says 'has left anything'
        ;;
      *) run 0 "$first" --tree=killed ;;
    esac
    [[ $first == drop ]] || expect_acknowledged killed
    [[ $first == drop ]] || run 0 check --tree=killed --quiet-tree
    run 0 drop killed
    no_logs
  done

  # Two owners of one tree, both killed: nothing that either has left is forgotten.
  local second tries
  run 0 create --tree=killed --mode=owned --key_bytes=20 --value_bytes=20
  start_writer killed
  "$programs/owned_writer" "$PANDO_REGISTRY" killed 50 >"$work/acknowledged_2" 2>"$work/writer_2.err" &
  second=$!
  children+=("$second")
  # Servers that are so busy may not answer a command in time.
  for ((tries = 0; tries < 200; ++tries)); do
    "$programs/pando" ranges --tree=killed --json >"$work/out" 2>"$work/err" || true
    (($(grep -o '"compute_server": [0-9]*' "$work/out" | sort -u | wc -l) < 2)) || break
    sleep 0.1
  done
  ((tries < 200)) || fail 'one compute server owns everything still'
  kill -KILL "${children[0]}" "$second"
  wait "${children[0]}" "$second" 2>/dev/null || true
  children=()
  cat "$work/acknowledged_2" >>"$work/acknowledged"
  run 0 flush --tree=killed
  says 'everything is in its leaf'
  expect_acknowledged killed
  no_logs
  run 0 check --quiet-tree
}

# members_log: the memory server that has the log of the compute server at work.
members_log() {
  run 0 members --json
  grep -o '"log_server": [0-9]*' "$work/out" | head -1 | grep -o '[0-9]*$'
}

# A memory server with a log dies: its owner goes on; of both, only an operator can say that they are lost.
test_lost() {
  local tries log
  # The tree lies on the first server, logs go to the one with most memory.
  start_server 1 --memory=256M
  run 0 create --tree=kept --mode=owned --key_bytes=20 --value_bytes=20
  run 0 put kept value --tree=kept
  start_server 2 --memory=512M
  run 2 recover --server_dead=2
  says '--server_dead needs --accept_loss'
  start_writer kept
  log=$(members_log)
  [[ $log == 2 ]] || fail "the log is on server $log"
  stop_server 2 KILL
  local acknowledged
  acknowledged=$(wc -l <"$work/acknowledged")
  for ((tries = 0; tries < 200; ++tries)); do
    (($(wc -l <"$work/acknowledged") < acknowledged + 2000)) || break
    kill -0 "${children[0]}" 2>/dev/null || fail "the writer: $(cat "$work/writer.err")"
    sleep 0.05
  done
  ((tries < 200)) || fail "the owner does not go on: $(cat "$work/writer.err")"
  kill_writer
  start_server 2 --memory=512M
  expect_acknowledged kept
  run 0 check --tree=kept --quiet-tree
  run 0 recover --accept_loss --json
  says '"may_have_lost": []'

  run 0 drop kept
  # The server is another one then, or is off for good.
  local state
  for state in again off; do
    # A few writes: the tree does not grow onto the second server yet.
    run 0 create --tree=few --mode=owned --key_bytes=20 --value_bytes=20
    run 0 put kept value --tree=few
    : >"$work/acknowledged"
    "$programs/owned_writer" "$PANDO_REGISTRY" few >"$work/acknowledged" 2>"$work/writer.err" &
    children=($!)
    for ((tries = 0; tries < 2000; ++tries)); do
      [[ ! -s $work/acknowledged ]] || break
      sleep 0.001
    done
    [[ -s $work/acknowledged ]] || fail "the writer: $(cat "$work/writer.err")"
    kill -STOP "${children[0]}"
    log=$(members_log)
    kill_writer
    [[ $log == 2 ]] || fail "the log is on server $log"
    stop_server 2 KILL
    [[ $state == off ]] || start_server 2 --memory=512M
    run 69 get kept --tree=few --timeout_ms=3000
    run 69 recover --timeout_ms=3000
    if [[ $state == again ]]; then
      run 1 recover --accept_loss --server_dead=2
      says 'it is not dead'
      run 0 recover --accept_loss
    else
      run 69 recover --accept_loss --timeout_ms=3000
      run 0 recover --accept_loss --server_dead=2
    fi
    says "tree 'few', keys from '' to the end: acknowledged writes of compute server"
    says 'nothing is left of 1 compute servers that had ended'
    run 0 get kept --tree=few
    prints value
    run 0 recover --accept_loss
    says 'has left anything'
    [[ $state == again ]] || start_server 2 --memory=512M
    no_logs
    run 0 drop few
  done
}
