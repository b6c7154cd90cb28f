# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004  # variables of tool_test; servers are known by name
# Cases of tool_test: what several hosts need, a memcached and RDMA.

# start_memcached [COMMAND...]: at $port, on this host only. A port that is taken makes it end at once.
start_memcached() {
  local tries command
  for ((tries = 0; tries < 50; ++tries)); do
    [[ -n ${port:-} ]] || port=$((20000 + RANDOM))
    command=("$@")
    [[ $# -gt 0 ]] || command=(memcached -u nobody -l 127.0.0.1 -p "$port" -U 0 -m 16)
    "${command[@]}" 2>"$work/memcached.log" &
    memcached=$!
    children+=("$memcached")
    while kill -0 "$memcached" 2>/dev/null; do
      ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
      sleep 0.02
    done
    [[ -n ${restarting:-} ]] || port=""
    sleep 0.02
  done
  fail "memcached does not start: $(cat "$work/memcached.log")"
}

# Servers and clients find each other by a memcached, and need it only for that.
test_memcached() {
  local port="" memcached="" restarting="" code=0 loader advice
  start_memcached
  export XDG_RUNTIME_DIR=$work PANDO_REGISTRY=memcached://127.0.0.1:$port/words
  run 69 trees
  says 'pando-memory'
  run 0 doctor
  says 'no memory server is running'
  start_server 1 --memory=512M
  start_server 2 --memory=512M
  words
  run 0 load "$work/words" --tree=words
  expect_all_words words
  run 0 doctor
  says "memory servers announced in $PANDO_REGISTRY: 2"
  says 'memory server 1 (catalog)'
  # The same id again, in this cluster and in another one.
  "$programs/pando-memory" --server_id=1 --memory=64M 2>"$work/err" || code=$?
  [[ $code == 1 ]] || fail "a second server 1: exit code $code"
  says ALREADY_EXISTS
  run 69 trees --registry="memcached://127.0.0.1:$port/other words"

  # Without memcached: who is connected works on, who comes is told, and nobody has to be started again.
  "$programs/pando" load "$work/words" --tree=puts --nobulk >/dev/null 2>"$work/load.err" &
  loader=$!
  children+=("$loader")
  until "$programs/pando" trees | grep -q puts; do sleep 0.01; done
  kill -KILL "$memcached"
  run 69 get zebra --tree=words
  says 'is it running?'
  run 1 doctor
  says 'is it running?'
  advice=$(sed -n 's/.*on that host: \(memcached .*\) -d (.*/\1/p' "$work/out")
  [[ $advice == memcached* ]] || fail 'doctor does not say how to start one'
  advice=${advice/ADDRESS/127.0.0.1}
  wait "$loader" || fail "load without memcached: $(cat "$work/load.err")"
  restarting=1
  # shellcheck disable=SC2086  # words of a command line
  start_memcached ${advice/PORT/$port}
  until "$programs/pando" check >/dev/null 2>&1; do sleep 0.1; done
  expect_all_words puts
  kill -STOP "$memcached"
  run 69 trees
  says 'does not answer'
  kill -CONT "$memcached"

  # A server that was killed is replaced at once, one that ends leaves nothing.
  stop_server 2 KILL
  start_server 2 --memory=512M
  stop_server 1 TERM
  stop_server 2 TERM
  run 69 trees
  says '0 of 1 memory servers'
}

# The flags of the RDMA path, by all programs. Skipped where there is no RDMA device.
test_rdma_path() {
  grep -qs ACTIVE /sys/class/infiniband/*/ports/*/state || exit 77
  local path=(--fabric=verbs --port=1 --mtu=1024)
  start_server 1 --memory=64M "${path[@]}"
  grep -q 'port 1, .*MTU 1024' "$work/server-1.log" || fail "the server says: $(cat "$work/server-1.log")"
  run 0 create "${path[@]}"
  run 0 put key value "${path[@]}"
  run 0 get key "${path[@]}"
  prints value
  run 0 doctor "${path[@]}"
  says 'MTU 1024'
  # The servers' fabric, whatever was asked for.
  run 0 doctor
  says 'these memory servers have fabric verbs, not shm'
  says 'memory server 1 (catalog): '
  start_server 2 --memory=64M
  run 1 doctor
  says 'memory servers of fabrics verbs and shm are announced in one registry'
  stop_server 2 TERM
  # Writes are whole up to the server's 1024 bytes; a path that carries less is refused (rule F6).
  run 69 get key --fabric=verbs --mtu=512
  says 'this path only 512'
  run 69 get key --fabric=verbs --gid_index=200
  says 'no GID with index 200'
  run 69 get key --fabric=verbs --port=9
  stop_server 1 TERM
  "$programs/pando-ycsb" "${path[@]}" --records=2000 --operations=2000 --noprogress --json="$work/json" \
    >"$work/out" 2>"$work/err" || fail 'pando-ycsb'
  grep -q '"mtu": 1024' "$work/json" || fail 'the result does not say what was asked for'
  "$programs/pando-chaos" "${path[@]}" --kills=1 --stops=0 --duration=3 --records=500 --rate=200 --gap_max_ms=60000 \
    --noprogress >"$work/out" 2>"$work/err" || fail 'pando-chaos'
}
