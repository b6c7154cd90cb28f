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
  run 2 doctor --fabric=verb
  says "--fabric is shm or verbs, not 'verb'"
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
  local code=0
  "$programs/pando" --help >/dev/full 2>"$work/err" || code=$?
  [[ $code == 74 ]] || fail "exit code $code where the help cannot be written"
  says 'writing the output: No space left on device'
  run 2 help frobnicate
  says "there is no command 'frobnicate'"
  run 0 --version
  run 69 trees
  says 'pando-memory'
  [[ ! -e $PANDO_REGISTRY ]] || fail 'who looks for servers has made a registry'
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
  code=0
  "$programs/pando" trees >/dev/null 2>"$work/err" &
  children=($!)
  until catches_abort "${children[0]}"; do
    kill -0 "${children[0]}" || fail "it has ended early"
    sleep 0.01
  done
  kill -ABRT "${children[0]}"
  wait "${children[0]}" || code=$?
  kill -CONT "${servers[1]}"
  [[ $code == 70 ]] || fail "exit code $code after an abort"
  says 'this is a bug in pando'
}

# catches_abort PID: it is a pando that has come to its own handler of SIGABRT, not this script before its exec.
catches_abort() {
  local caught
  [[ $(readlink "/proc/$1/exe") == */pando ]] || return
  caught=$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status")
  ((16#$caught >> 5 & 1))  # SIGABRT is 6
}

# superblock SERVER: in the memory of a running one.
superblock() { head -c 96 "$(memory_of "$1")" | od -An -v -tx1; }

# What a program finds where it is started: standard descriptors that are closed, little memory.
test_surroundings() {
  start_server 1 --memory=64M
  superblock 1 >"$work/superblock"
  stop_server 1 TERM
  "$programs/pando-memory" --server_id=1 --memory=64M --exit_with_parent 2>&- &
  servers[1]=$!
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    ! "$programs/pando" trees >/dev/null 2>&1 || break
    sleep 0.05
  done
  superblock 1 | cmp - "$work/superblock" || fail 'the log of a server is in its superblock'
  run 0 create --tree=kept
  run 0 put key value --tree=kept
  "$programs/pando" dump "$work/dump" --tree=kept --progress <&- >&- 2>&- || [[ $? == 74 ]] ||
    fail 'no standard descriptors'
  superblock 1 | cmp - "$work/superblock" || fail 'the progress of a client is in the superblock'
  run 0 restore "$work/dump" --tree=restored
  local code=0
  "$programs/pando" get key --tree=kept >&- 2>"$work/err" || code=$?
  [[ $code == 74 ]] || fail "exit code $code where nothing can be printed"
  says 'writing the output: Bad file descriptor'

  # With a sanitizer it does not even start in so little.
  truncate -s 1G "$work/zeros"
  if (ulimit -v 700000 && "$programs/pando" --version >/dev/null 2>&1); then
    (
      ulimit -v 700000
      run 69 load "$work/zeros" --tree=none
    )
    says 'gives this process no more memory'
    says RESOURCE_EXHAUSTED
  fi
  rm "$work/zeros"
  stop_server 1 TERM
}

# json EXPRESSION: of the document, or the list of the lines, in $work/out; prints what it is in Python.
json() {
  python3 -c '
import base64, json, sys
text = open(sys.argv[1]).read()
lines = [json.loads(line) for line in text.splitlines()] if text[:2] != "{\n" else []
document = json.loads(text) if text[:2] == "{\n" else None
def of(row, name):
  return base64.b64decode(row[name + "_base64"]) if name + "_base64" in row else row[name].encode()
print(eval(sys.argv[2]))' "$work/out" "$1"
}
expect_json() { [[ $(json "$1") == "$2" ]] || fail "$1 is $(json "$1"), not $2"; }

# Keys and values that are any bytes, on the command line and in every format.
test_formats() {
  local format
  start_server 1 --memory=64M
  run 0 create --key_bytes=20 --value_bytes=255
  run 0 put $'tab\tkey' $'back\\slash\nline\r'
  run 0 put --hex 00ff80 ''
  run 0 put -- -dash --flag
  run 0 put wörter größe
  run 0 put plain @@home
  run 0 get plain
  prints @home
  run 0 put @key @@
  run 0 get @key
  prints @
  head -c 255 /dev/urandom >"$work/value"
  run 0 put random "@$work/value"
  run 0 get random
  cmp "$work/out" <(cat "$work/value" && echo) || fail 'a value from a file is not kept as it is'
  run 0 put random @- < <(printf 'a\0b')
  run 0 get --hex 72616e646f6d
  prints 610062
  run 2 put random "@$work/nowhere"
  says 'cannot open'
  run 2 put random "@$work"
  says 'is a directory'
  run 2 put random @
  says 'is followed by the name of a file'
  head -c 65537 /dev/zero >"$work/value"
  run 2 put random "@$work/value"
  says 'has more than 65536 bytes'
  run 2 get --hex abc
  says 'hexadecimal digits'
  run 1 get --hex abcd
  run 0 get --hex 00ff80
  prints ''

  run 0 get --json -- -dash
  prints '{"key":"-dash","value":"--flag"}'
  run 0 get --json --hex 00ff80
  prints '{"key_base64":"AP+A","value":""}'
  run 1 get --json missing
  prints ''
  run 0 scan --values --format=tsv
  cp "$work/out" "$work/tsv"
  says 'tab\tkey	back\\slash\nline\r'
  [[ $(wc -l <"$work/out") == 7 ]] || fail 'not a line a key'
  run 0 scan --values --format=hex
  cp "$work/out" "$work/hex"
  says $'00ff80\t'
  says $'77c3b672746572\t6772c3b6c39f65'
  run 0 scan --values --json
  expect_json 'len(lines)' 7
  json '"\n".join(of(row, "key").hex() + "\t" + of(row, "value").hex() for row in lines)' >"$work/back"
  cmp "$work/back" "$work/hex" || fail 'JSON and hex differ'
  cp "$work/out" "$work/json"
  run 0 scan --values --format=json
  cmp "$work/out" "$work/json" || fail '--json is not --format=json'
  run 0 scan --hex --from=00ff80 --to=00ff81 --format=hex
  prints 00ff80
  run 0 scan --hex --prefix=77c3
  prints wörter
  local code=0
  "$programs/pando" scan >/dev/full 2>"$work/err" || code=$?
  [[ $code == 74 ]] || fail "exit code $code where the output cannot be written"
  says 'writing the output: No space left on device'
  run 2 scan --format=xml
  says "--format is raw, tsv, hex or json, not 'xml'"
  run 2 scan --format=tsv --json
  says 'exclude each other'
  run 2 scan --hex --from=x
  says '--from: '

  run 0 create --tree=ranges
  local key
  for key in a b c d e; do run 0 put --tree=ranges $key 1; done
  run 2 erase --tree=ranges
  says 'which keys? Give --from or --to'
  run 0 erase --tree=ranges --from=b --to=d
  prints 'erased 2 keys'
  run 0 erase --tree=ranges --hex --to=62 --json
  expect_json 'lines[0]["tree"], lines[0]["erased"]' "('ranges', 1)"
  run 0 scan --tree=ranges
  [[ $(tr '\n' ' ' <"$work/out") == 'd e ' ]] || fail 'not the keys that were not to be erased'
  run 1 erase --tree=nowhere --from=
  run 2 erase --tree=ranges --from=b --values
  run 0 erase --tree=ranges --from=
  prints 'erased 2 keys'
  run 0 drop ranges

  run 0 trees --json
  expect_json 'document["trees"][0]["name"], document["trees"][0]["value_bytes_max"], document["trees"][0]["mode"]' \
    "('default', 255, 'shared')"
  run 0 check --json
  expect_json 'document["ok"], document["trees"][0]["tree"], document["trees"][0]["keys"]' "(True, 'default', 7)"
  run 0 stats --json
  expect_json 'document["memory_servers"][0]["available"], document["memory_servers"][0]["region_bytes"]' "(True, $((64 << 20)))"
  expect_json '"peers_gone" in document["memory_servers"][0]["counters"]' True
  for format in --json --nojson; do
    "$programs/pando" stats --watch=0.1 $format 2>"$work/err" | head -n 100 >"$work/out" || fail "stats --watch $format"
    [[ ${PIPESTATUS[*]} == '0 0' ]] || fail "stats --watch $format: exit codes ${PIPESTATUS[*]}"
  done
  "$programs/pando" stats --watch=0.1 --json 2>"$work/err" | head -n 3 >"$work/out" || fail 'stats --watch --json'
  expect_json 'len(lines), lines[1]["time_ms"] - lines[0]["time_ms"] >= 90, lines[2]["memory_servers"][0]["id"]' '(3, True, 1)'
  run 2 stats --watch=soon
  says "--watch is 0.1 to 86400 seconds, not 'soon'"
  run 2 stats --watch 5
  says 'stats takes 0 arguments, not 1'
  # One that is announced and does not answer is missed, although clients go on without it.
  start_server 2 --memory=64M
  run 0 doctor
  says 'memory server 2: '
  kill -STOP "${servers[2]}"
  run 69 stats
  says 'memory server 1 (catalog)'
  says 'memory server 2 does not answer (UNAVAILABLE)'
  run 69 stats --json
  expect_json '[(server["id"], server["available"]) for server in document["memory_servers"]]' '[(1, True), (2, False)]'
  "$programs/pando" stats --watch=0.1 --json 2>"$work/err" | head -n 2 >"$work/out" || fail 'stats --watch --json'
  expect_json 'lines[1]["memory_servers"][1]' "{'id': 2, 'available': False}"
  run 1 doctor
  says '[fix]  memory server 2 does not answer'
  kill -CONT "${servers[2]}"
  run 0 stats
  says 'memory server 2: '
  stop_server 1 KILL
  run 69 stats
}
