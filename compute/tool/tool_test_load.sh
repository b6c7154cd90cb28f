# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: what is loaded, and from where.

# says_in_one_line TEXT: nothing else, and no more than that.
says_in_one_line() {
  says "$1"
  [[ $(wc -l <"$work/err") == 1 ]] || fail 'not told in one line'
}
# in_hex TREE: all of it.
in_hex() {
  "$programs/pando" scan --values --format=hex --tree="$1"
}

test_load() {
  local format word
  start_server 1 --memory=64M
  # What is scanned can be loaded, to the last byte.
  run 0 create --tree=bytes --key_bytes=20 --value_bytes=20
  for word in 00 ff 610962 5c74 0a0d 2c22 c3b6 2d2d; do run 0 put --hex "$word" "${word}00$word" --tree=bytes; done
  run 0 put --hex 20 '' --tree=bytes
  in_hex bytes >"$work/hex"
  for format in tsv jsonl; do
    run 0 scan --values --format=${format%l} --tree=bytes
    cp "$work/out" "$work/text"
    run 0 load "$work/text" --format=$format --tree=$format
    says '9 keys from 9 lines'
    in_hex $format | cmp - "$work/hex" || fail "what is scanned as $format is not what is loaded"
    run 0 load - --format=$format --tree=$format-too <"$work/text"
    in_hex $format-too | cmp - "$work/hex" || fail "$format from standard input"
  done
  printf '"a,""\n",1\r\nb,"2"\r\n' >"$work/csv"
  run 0 load "$work/csv" --format=csv --tree=csv
  run 0 scan --values --format=tsv --tree=csv
  prints $'a,"\\n\t1\nb\t2'
  run 0 trees
  grep -q '^csv  *4  *1  ' "$work/out" || fail 'the tree is not made for what is loaded'
  printf 'a\t1\nb\n' >"$work/text"
  run 2 load "$work/text" --format=tsv --tree=none
  says_in_one_line "$work/text:2: no tab between a key and a value"
  run 2 load - --format=jsonl --tree=none <"$work/text"
  says_in_one_line 'standard input:1: this is not JSON'
  run 2 load "$work/hex" --tree=none --key_bytes=3
  says_in_one_line "--key_bytes is 3: leave it out, or give "
  run 2 load "$work/csv" --format=csv --tree=none --value_bytes=0
  says_in_one_line 'there are values of 1 bytes, --value_bytes is 0: leave it out, or give 1 or more'
  run 1 get a --tree=none
  says 'there is no tree'
  run 2 load "$work/text" --format=xml
  says "--format is lines, tsv, csv or jsonl, not 'xml'"

  # Where it may come from.
  run 2 load "$work" --tree=none
  says_in_one_line "$work is a directory"
  run 2 load "$work/nowhere" --tree=none
  says_in_one_line "cannot open $work/nowhere: No such file or directory"
  run 0 load /proc/version --tree=version
  run 0 get "$(cat /proc/version)" --tree=version
  prints 1
  run 0 load <(printf 'b\na\n') --tree=pipe
  run 0 scan --tree=pipe
  prints $'a\nb'
  : >"$work/empty"
  run 0 load "$work/empty" --tree=empty
  says 'loaded 0 keys from 0 lines'
  run 0 trees
  grep -q '^empty  *8  *8  ' "$work/out" || fail 'an empty file makes a tree of other limits'
  run 0 load /dev/null --tree=empty
  run 2 load "$work/text" --tree=version --sessions=300

  # Into trees that have keys, in whatever order these come.
  seq 20000 29999 >"$work/sorted_keys"
  seq 39999 -1 20000 | awk '{print $1 "\t" "new"}' >"$work/unsorted"
  run 0 load "$work/sorted_keys" --tree=both --value_bytes=8 --progress
  says 'loaded 10000 keys (100 %), '
  run 0 load "$work/unsorted" --tree=both --format=tsv
  [[ ! -s $work/err ]] || fail 'progress is shown where nobody looks'
  says 'loaded 20000 keys'
  run 0 scan --tree=both --values
  cmp "$work/out" <(seq 20000 39999 | sed 's/$/\tnew/') || fail 'unsorted records into a tree that has keys'
  run 0 load "$work/sorted_keys" --tree=both
  run 0 scan --tree=both --values
  cmp "$work/out" <(seq 1 10000 | awk '{print $1 + 19999 "\t" $1}'; seq 30000 39999 | sed 's/$/\tnew/') ||
    fail 'sorted records into a tree that has keys'
  run 0 check --tree=both --quiet-tree
  run 2 load "$work/text" --format=lines --tree=both --key_bytes=255 --value_bytes=65537
  says '--value_bytes is -1 to 65536'
  seq -f '%.0f-too-long' 1 10 >"$work/long"
  run 2 load "$work/long" --tree=both
  says 'keys of 11 and values of 2 bytes'

  # What the tree has is not made otherwise; a flag that says what it has is no reason to refuse.
  printf 'a\t%s\n' "$(printf '%0300d' 1)" >"$work/value"
  run 0 load "$work/value" --format=tsv --tree=large
  run 1 load "$work/value" --format=tsv --tree=large --inline_value_bytes=100
  says_in_one_line "tree 'large' is there, and has --inline_value_bytes=20: leave that out, or give another --tree"
  run 0 load "$work/value" --format=tsv --tree=large --inline_value_bytes=20 --nonarrow_reads
  run 1 load "$work/value" --format=tsv --tree=large --narrow_reads
  says_in_one_line "tree 'large' is there, and has the other --narrow_reads: leave that out, or give another --tree"
  run 0 load "$work/sorted_keys" --tree=short --inline_value_bytes=200 --narrow_reads
  run 0 load "$work/sorted_keys" --tree=short --inline_value_bytes=200 --narrow_reads
  run 0 load "$work/sorted_keys" --tree=short
  run 1 load "$work/sorted_keys" --tree=short --nonarrow_reads
  run 1 load "$work/sorted_keys" --tree=short --inline_value_bytes=2

  # Servers without room: what is in the tree is said.
  stop_server 1 TERM
  start_server 1 --memory=4M
  run 69 load "$work/unsorted" --format=tsv --tree=wide --key_bytes=255 --value_bytes=255
  says_in_one_line "nothing is loaded into 'wide': "
  says RESOURCE_EXHAUSTED
  run 0 scan --tree=wide
  prints ''
  run 69 load "$work/unsorted" --format=tsv --tree=wide --nobulk
  says_in_one_line " of 20000 keys were put into 'wide', which keeps what else it has; the same command again is right: "
  local loaded
  loaded=$(sed 's/.*load: this time \([0-9]*\) of.*/\1/' "$work/err")
  run 0 scan --tree=wide
  (($(wc -l <"$work/out") >= loaded && loaded > 0)) || fail "$loaded are said to be loaded"
  # Again, in other sessions: nothing is said of what is there already.
  local there
  there=$(wc -l <"$work/out")
  run 69 load "$work/unsorted" --format=tsv --tree=wide --nobulk --sessions=1
  says_in_one_line 'this time '
  run 0 scan --tree=wide
  (($(wc -l <"$work/out") >= there)) || fail 'a second attempt has lost something'
}
