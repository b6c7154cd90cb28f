# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: dump and restore.

# same_dump TREE FILE: a dump of the tree is that file, byte for byte.
same_dump() {
  rm -f "$work/again"
  run 0 dump "$work/again" --tree="$1"
  cmp "$work/again" "$2" || fail "the dump of $1 is another one"
}
# flip_byte_of FILE OFFSET
flip_byte_of() {
  local byte
  byte=$(dd if="$1" bs=1 skip="$2" count=1 status=none | od -An -tu1)
  # shellcheck disable=SC2059  # the format is the byte
  printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# kill_beyond FUNCTION NUMBER COMMAND...: starts pando COMMAND and kills it once FUNCTION prints more than NUMBER.
kill_beyond() {
  local what=$1 number=$2
  shift 2
  "$programs/pando" "$@" >"$work/out" 2>"$work/err" &
  children=($!)
  until (($($what) > number)); do
    kill -0 "${children[0]}" 2>/dev/null || fail "pando $* has ended early"
    sleep 0.02
  done
  kill -KILL "${children[0]}"
  wait "${children[0]}" 2>/dev/null || true
  children=()
}
size_of_dump() { stat -c %s "$work/killed" 2>/dev/null || echo 0; }
keys_restored() { { "$programs/pando" scan --tree=killed --limit=2000 2>/dev/null || true; } | wc -l; }

# As many records as words: the dump of a restored dump is the same, also where one of the two was killed half way.
test_dump() {
  local bytes part
  start_server 1 --memory=512M
  start_server 2 --memory=512M
  seq 1 "$word_count" | awk '{printf "key-%08d\n", $1}' >"$work/million"
  run 0 load "$work/million" --tree=million
  run 0 dump "$work/dump" --tree=million
  says "dumped $word_count keys of 'million'"
  bytes=$(stat -c %s "$work/dump")
  [[ $(stat -c %a "$work/dump") == 600 ]] || fail 'others can read the dump'
  same_dump million "$work/dump"
  run 0 restore "$work/dump" --tree=restored --progress
  says "restored $word_count keys into new tree 'restored'"
  grep -q "^restored $word_count keys (100 %)" "$work/err" || fail 'no progress is shown'
  same_dump restored "$work/dump"
  run 0 check --tree=restored --quiet-tree
  run 0 drop restored
  run 0 restore "$work/dump" --tree=restored --nobulk
  same_dump restored "$work/dump"
  run 0 drop restored
  # Through a pipe.
  "$programs/pando" dump - --tree=million 2>"$work/err" | "$programs/pando" restore - --tree=restored >"$work/out" ||
    fail 'dump | restore'
  same_dump restored "$work/dump"
  run 0 drop restored

  kill_beyond size_of_dump $((bytes / 3)) dump "$work/killed" --tree=million --rate=$((bytes / 2))
  cp "$work/killed" "$work/half"
  run 74 restore "$work/half" --tree=nothing
  says 'the dump ends too early, at offset'
  says "nothing is restored into new tree 'nothing'"
  run 0 scan --tree=nothing
  prints ''
  run 1 dump "$work/killed" --tree=million
  says 'is there already: --resume goes on'
  run 0 dump "$work/killed" --tree=million --resume
  says 'were there) of'
  cmp "$work/killed" "$work/dump" || fail 'a resumed dump is another one'
  run 0 dump "$work/killed" --tree=million --resume
  says "is whole: $word_count keys"
  # Wherever it was cut off.
  for part in 0 5 100 $((bytes / 3)) $((bytes / 2 + 1)) $((bytes - 40)) $((bytes - 1)); do
    head -c "$part" "$work/dump" >"$work/killed"
    run 0 dump "$work/killed" --tree=million --resume
    cmp "$work/killed" "$work/dump" || fail "a dump that was cut off at $part and resumed is another one"
  done

  # While it still goes on.
  rm "$work/killed"
  "$programs/pando" dump "$work/killed" --tree=million --rate=$((bytes / 3)) >/dev/null 2>&1 &
  children=($!)
  until (($(size_of_dump) > bytes / 10)); do
    kill -0 "${children[0]}" 2>/dev/null || fail 'a dump has ended early'
    sleep 0.02
  done
  run 1 dump "$work/killed" --tree=million --resume
  says "another dump still writes $work/killed"
  wait "${children[0]}" || fail "exit code $? of a dump"
  children=()
  cmp "$work/killed" "$work/dump" || fail 'a dump beside which another one was to resume is another one'

  kill_beyond keys_restored 1000 restore "$work/dump" --tree=killed --rate=$((bytes / 3))
  run 0 restore "$work/dump" --tree=killed
  says "into tree 'killed', in addition to what it has"
  same_dump killed "$work/dump"
}

# What can be wrong with a dump, with what it comes from, and with what it goes to.
test_dump_errors() {
  local bytes offset
  start_server 1 --memory=64M
  run 1 dump "$work/dump"
  says "there is no tree 'default'"
  [[ ! -e $work/dump ]] || fail 'a file is left'
  run 0 create --key_bytes=20 --value_bytes=20 --tree=empty
  run 0 dump "$work/empty" --tree=empty
  says 'dumped 0 keys'
  run 0 restore "$work/empty" --tree=empty_too
  same_dump empty_too "$work/empty"
  seq 1 20000 >"$work/numbers"
  run 0 load "$work/numbers" --tree=numbers
  run 0 dump "$work/dump" --tree=numbers
  bytes=$(stat -c %s "$work/dump")

  # A tree that has keys keeps those that the dump does not have.
  run 0 create --tree=other --key_bytes=8 --value_bytes=8
  run 0 put 7 other --tree=other
  run 0 put a kept --tree=other
  run 0 restore "$work/dump" --tree=other
  says "restored 20000 keys into tree 'other', in addition to what it has"
  run 0 get 7 --tree=other
  prints 7
  run 0 get a --tree=other
  prints kept
  run 0 create --tree=part --key_bytes=8 --value_bytes=8
  run 0 restore "$work/dump" --tree=part --hex --from=39
  says "into empty tree 'part'"
  run 0 scan --tree=part
  cmp "$work/out" <(LC_ALL=C sort "$work/numbers" | grep ^9) || fail 'restore --from'
  run 0 create --tree=narrow --key_bytes=3 --value_bytes=8
  run 1 restore "$work/dump" --tree=narrow
  says "takes keys and values of 3 and 8 bytes, the dump's have up to 5 and 5"
  run 1 dump "$work/empty" --tree=numbers --resume
  says 'the dump of a tree with other options'
  run 0 create --tree=owned --mode=owned --key_bytes=8 --value_bytes=8 --delete_persistence_ms=1500
  run 0 restore "$work/dump" --tree=owned
  run 0 dump "$work/owned" --tree=owned
  run 0 restore "$work/owned" --tree=owned_too
  same_dump owned_too "$work/owned"
  run 0 trees
  grep -q '^owned_too .* owned$' "$work/out" || fail 'a dump does not keep the mode'
  run 0 create --tree=windows --narrow_reads
  run 1 create --tree=windows --nonarrow_reads
  run 0 restore "$work/dump" --tree=windows
  run 0 dump "$work/windows" --tree=windows
  run 0 restore "$work/windows" --tree=windows_too
  same_dump windows_too "$work/windows"
  run 0 trees
  grep -q '^windows_too .* shared, narrow reads$' "$work/out" || fail 'a dump does not keep narrow reads'
  run 0 trees --json
  [[ $(grep -o '"delete_persistence_ms": *1500' "$work/out" | wc -l) == 2 ]] || fail 'nor how long erases may take'

  for offset in 9 30 200 $((bytes / 2)) $((bytes - 10)); do
    cp "$work/dump" "$work/damaged"
    flip_byte_of "$work/damaged" "$offset"
    if ((offset > 9)); then
      run 74 restore "$work/damaged" --tree=damaged
      says 'the dump is damaged at offset'
      run 74 dump "$work/damaged" --tree=numbers --resume
      says 'the dump is damaged at offset'
    else
      run 2 restore "$work/damaged" --tree=damaged
      says 'a dump of version'
    fi
  done
  run 0 scan --tree=damaged
  prints ''
  # In a tree that has keys what comes before the damage is there, and it is said up to where.
  flip_byte_of "$work/damaged" $((bytes - 10))
  flip_byte_of "$work/damaged" $((bytes / 2))
  run 74 restore "$work/damaged" --tree=other
  says 'keys are restored; the same command again is right, and with --hex --from='
  head -c $((bytes - 1)) "$work/dump" >"$work/cut"
  run 74 restore "$work/cut" --tree=cut
  says "too early, at offset $((bytes - 1))"
  run 74 restore - --tree=cut <"$work/cut"
  says 'standard input: the dump ends too early'
  run 2 restore "$work/numbers" --tree=cut
  says 'this is not a dump of pando'
  run 2 restore "$work" --tree=cut
  says 'is a directory'
  run 2 restore "$work/nowhere"
  says 'cannot open'
  run 2 dump "$work/no/where" --tree=numbers
  says 'cannot make'
  run 2 dump "$work" --tree=numbers --resume
  run 2 dump - --resume --tree=numbers
  says '--resume needs a file'
  run 74 dump /dev/full --tree=numbers
  says 'begin again, as --resume needs a file'
  says 'No space left on device'
  mkfifo "$work/pipe"
  head -c 1 <"$work/pipe" >/dev/null &
  run 74 dump "$work/pipe" --tree=numbers
  says 'begin again'
  run 0 dump /dev/null --tree=numbers --progress
  grep -q '^dumped 20000 keys' "$work/err" || fail 'no progress is shown'
  run 2 dump "$work/again" --tree=numbers --rate=fast
  says 'write 4096, 64K or 1.5GiB'
  # A pipe whose reader goes away has no whole dump.
  { "$programs/pando" dump - --tree=numbers 2>"$work/err" || echo $? >"$work/code"; } | head -c 10 >/dev/null
  [[ $(cat "$work/code") == 74 ]] || fail 'a dump that nobody reads is taken for whole'
  says 'cannot write standard output: Broken pipe'

  # Servers without room: nothing, or what there is room for. Slots of ten lines are too many.
  run 0 load "$work/numbers" --tree=wide --key_bytes=255 --value_bytes=255
  rm "$work/dump"
  run 0 dump "$work/dump" --tree=wide
  stop_server 1 TERM
  start_server 1 --memory=4M
  run 69 restore "$work/dump" --tree=numbers --nobulk
  says 'keys are restored; the same command again'
  says RESOURCE_EXHAUSTED
  run 0 drop numbers
  run 69 restore "$work/dump" --tree=numbers
  says "nothing is restored into new tree 'numbers'"
}
