# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: values that lie outside the leaves.

# large_records: a line of JSON each, keys key-00 to key-39, values of 0 to 65,536 bytes.
large_records() {
  python3 -c '
import json, random
r = random.Random(7)
lengths = [65536, 0, 1, 20, 21, 255, 256, 65535] + [r.randrange(65537) for _ in range(32)]
for i, length in enumerate(lengths):
  alphabet = ["a", "\t", "\"", "\\", "\u00f6"] if i % 2 else ["x", "y"]
  value = "".join(r.choices(alphabet, k=length // 2))
  value += "z" * (length - len(value.encode()))
  print(json.dumps({"key": "key-%02d" % i, "value": value}))'
}

test_large() {
  local format
  start_server 1 --memory=64M
  start_server 2 --memory=64M
  head -c 65536 /dev/urandom >"$work/most"
  head -c 65537 /dev/zero >"$work/more"
  run 2 create --tree=none --value_bytes=65537
  says '--value_bytes is -1 to 65536, not 65537'
  run 2 create --tree=none --value_bytes=1000 --inline_value_bytes=255
  says '--inline_value_bytes is 0 to 254, not 255'
  run 0 trees
  prints 'name  key bytes  value bytes  inline  node bytes  mode'

  # One value: from a file, from standard input, as a word; back as it is, in hexadecimal digits, as JSON.
  run 0 create --tree=large --value_bytes=65536
  run 0 create --tree=large --value_bytes=65536 --inline_value_bytes=20
  run 1 create --tree=large --value_bytes=65536 --inline_value_bytes=100
  run 0 put file "@$work/most" --tree=large
  run 0 put stdin @- --tree=large <"$work/most"
  run 0 put word "$(head -c 49152 "$work/most" | base64 -w 0)" --tree=large
  run 0 put short 1 --tree=large
  for key in file stdin; do
    run 0 get $key --tree=large
    cmp "$work/out" <(cat "$work/most" && echo) || fail "the value of $key is not kept as it is"
  done
  run 0 get word --tree=large
  cmp "$work/out" <(head -c 49152 "$work/most" | base64 -w 0 && echo) || fail 'a value of the command line'
  run 0 get --hex 66696c65 --tree=large
  cmp "$work/out" <(od -An -v -tx1 "$work/most" | tr -d ' \n' && echo) || fail 'a value in hexadecimal digits'
  run 0 get --json file --tree=large
  json 'lines[0]["value_base64"]' | base64 -d | cmp - "$work/most" || fail 'a value in JSON'
  run 2 put file "@$work/more" --tree=large
  says_in_one_line 'has more than 65536 bytes'
  run 2 put file @- --tree=large <"$work/more"
  says_in_one_line 'standard input has more than 65536 bytes'
  run 2 put file "$(tr '\0' x <"$work/more")" --tree=large
  says_in_one_line 'a value of 65537 bytes'
  run 0 put file short --tree=large
  run 0 get file --tree=large
  prints short
  run 0 delete stdin --tree=large
  run 1 get stdin --tree=large

  # Many: loaded in one go and put one by one, the tree made for the longest.
  large_records >"$work/records"
  for format in --bulk --nobulk; do
    run 0 load "$work/records" --format=jsonl --tree=loaded$format $format
    says 'loaded 40 keys from 40 lines'
    run 0 scan --values --format=json --tree=loaded$format
    json '"".join(row["key"] + row["value"] for row in lines)' >"$work/scanned"
    json '"".join(row["key"] + row["value"] for row in map(json.loads, open("'"$work/records"'")))' >"$work/given"
    cmp "$work/scanned" "$work/given" || fail "what is loaded with $format is not what is scanned"
    run 0 scan --values --format=json --reverse --limit=3 --tree=loaded$format
    expect_json '[row["key"] for row in lines]' "['key-39', 'key-38', 'key-37']"
    in_hex loaded$format >"$work/hex$format"
  done
  cmp "$work/hex--bulk" "$work/hex--nobulk" || fail 'two ways to load, two trees'
  run 0 scan --values --format=tsv --tree=loaded--bulk
  cp "$work/out" "$work/tsv"
  run 0 load "$work/tsv" --format=tsv --tree=tsv --inline_value_bytes=200
  in_hex tsv | cmp - "$work/hex--bulk" || fail 'what is scanned as tsv is not what is loaded'
  python3 -c '
import json, sys
for row in map(json.loads, open(sys.argv[1])):
  sys.stdout.write("\"%s\",\"%s\"\r\n" % (row["key"], row["value"].replace("\"", "\"\"")))' "$work/records" >"$work/csv"
  run 0 load "$work/csv" --format=csv --tree=csv
  in_hex csv | cmp - "$work/hex--bulk" || fail 'what is loaded as csv is something else'
  printf 'long\t%s\n' "$(tr '\0' x <"$work/more")" >"$work/text"
  run 2 load "$work/text" --format=tsv --tree=none
  says_in_one_line "$work/text:1: a key of 4 and a value of 65537 bytes; keys have at most 255, values at most 65536"
  run 0 load "$work/records" --format=jsonl --tree=owned --mode=owned
  in_hex owned | cmp - "$work/hex--bulk" || fail 'what an owned tree holds is not what is loaded'
  run 0 put key-00 "@$work/most" --tree=owned
  run 0 delete key-01 --tree=owned
  run 0 check --tree=owned --quiet-tree --json
  expect_json 'document["trees"][0]["keys"], document["trees"][0]["cells_unused"]' '(39, 0)'
  run 0 trees
  grep -qE '^tsv +6 +65536 +200 +[0-9]+ +shared$' "$work/out" || fail 'trees does not say how long values in leaves are'
  run 0 trees --json
  expect_json '{row["name"]: (row["value_bytes_max"], row["inline_value_bytes_max"]) for row in document["trees"]}["large"]' \
    '(65536, 20)'

  # Dumped, also to where it was cut off, and restored.
  run 0 dump "$work/dump" --tree=tsv
  run 0 restore "$work/dump" --tree=restored
  in_hex restored | cmp - "$work/hex--bulk" || fail 'what is restored is not what was dumped'
  same_dump restored "$work/dump"
  run 0 drop restored
  run 0 restore "$work/dump" --tree=restored --nobulk
  same_dump restored "$work/dump"
  head -c 300000 "$work/dump" >"$work/cut"
  run 74 restore "$work/cut" --tree=cut
  says 'the dump ends too early'
  run 0 dump "$work/cut" --tree=tsv --resume
  cmp "$work/cut" "$work/dump" || fail 'a resumed dump is another one'
  run 0 create --tree=narrow --key_bytes=6 --value_bytes=1000
  run 1 restore "$work/dump" --tree=narrow
  says "takes keys and values of 6 and 1000 bytes, the dump's have up to 6 and 65536"

  # What is counted. Values in leaves are up to 200 bytes long in one of the trees.
  run 0 count --tree=tsv
  says '40 keys, 240 B; values '
  run 0 check --tree=tsv --quiet-tree --json
  expect_json 'document["trees"][0]["cells"], document["trees"][0]["cells_unused"]' \
    "($(awk 'length($2) > 400' "$work/hex--bulk" | wc -l), 0)"
  expect_json '1 <= document["trees"][0]["cells_bytes"] / document["trees"][0]["value_bytes"] < 1.2' True
  run 0 check --quiet-tree
  says ' values outside the leaves in '
  run 0 erase --tree=tsv --from=
  prints 'erased 40 keys'
  run 0 check --tree=tsv --json
  expect_json 'document["trees"][0]["cells"], document["trees"][0]["value_bytes"]' '(0, 0)'

  # A restore that fails leaves the memory that it took to the right one.
  python3 -c '
for i in range(300): print("key-%03d\t%s" % (i, "x" * 40000))' >"$work/text"
  run 0 load "$work/text" --format=tsv --tree=half
  rm "$work/dump"
  run 0 dump "$work/dump" --tree=half
  stop_server 2 TERM
  stop_server 1 TERM
  start_server 1 --memory=24M
  head -c 11M "$work/dump" >"$work/cut"
  run 74 restore - --tree=half <"$work/cut"
  run 0 restore - --tree=half <"$work/dump"
  run 0 check --tree=half --quiet-tree --json
  expect_json 'document["trees"][0]["keys"], document["trees"][0]["cells_unused"]' '(300, 0)'
}
