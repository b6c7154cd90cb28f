// A whole program in C11, with threads, that uses most of pando.h and ends with nothing open: what
// sanitizers look at (program_test).
//   c_program REGISTRY
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "pando.h"

enum { kThreads = 4, kKeys = 400 };

// Ends the program if the call has not given this code.
#define GIVES(expected, call) Check((expected), (call), #call, __LINE__)
static void Check(pando_code expected, pando_code code, const char* call, int line) {
  if (code == expected) return;
  fprintf(stderr, "line %d: %s: %s, expected %s: %s\n", line, call, pando_code_name(code),
          pando_code_name(expected), pando_last_message());
  exit(1);
}
static void Holds(int condition, const char* what, int line) {
  if (condition) return;
  fprintf(stderr, "line %d: not so: %s\n", line, what);
  exit(1);
}
#define HOLDS(condition) Holds((condition), #condition, __LINE__)

typedef struct {
  pando_client* client;
  pando_tree* tree;
  pando_executor* executor;
  atomic_int* answered;
  int number;
  pthread_t thread;
} Worker;

static pando_bytes KeyOf(int thread, int n, char key[16]) {
  return pando_view(key, (size_t)snprintf(key, 16, "%d-%05d", thread, n));
}

static void Answered(void* context, const pando_answer* answer) {
  HOLDS(answer->result.code == PANDO_OK);
  atomic_fetch_add((atomic_int*)context, 1);
}

// Writes and reads keys of its own with a session of its own, and a counter of all through the
// executor.
static void* Work(void* context) {
  const Worker* const worker = context;
  pando_session* session = NULL;
  GIVES(PANDO_OK, pando_open_session(worker->client, &session));
  char key[16], value[16];
  size_t size = 0;
  const int64_t one = 1;
  for (int n = 0; n < kKeys; ++n) {
    GIVES(PANDO_OK, pando_put(session, worker->tree, KeyOf(worker->number, n, key),
                              pando_view(&n, sizeof(n)), NULL));
    pando_operation add = PANDO_OPERATION_INIT;
    add.kind = PANDO_OPERATION_UPSERT;
    add.function = PANDO_UPSERT_ADD;
    add.key = pando_text("sum");
    add.value = pando_view(&one, sizeof(one));
    GIVES(PANDO_OK, pando_submit(worker->executor, worker->tree, &add, Answered, worker->answered));
  }
  for (int n = 0; n < kKeys; ++n) {
    GIVES(PANDO_OK, pando_get(session, worker->tree, KeyOf(worker->number, n, key), value,
                              sizeof(value), &size, NULL));
    HOLDS(size == sizeof(n) && memcmp(value, &n, size) == 0);
  }
  GIVES(PANDO_NOT_FOUND,
        pando_get(session, worker->tree, pando_text("none"), value, sizeof(value), &size, NULL));
  // Every other one leaves its session to the client.
  if (worker->number % 2 == 0) GIVES(PANDO_OK, pando_close_session(session));
  return NULL;
}

// All keys of the workers, in order, in both ways of reading.
static void ReadAll(pando_client* client, pando_tree* tree) {
  pando_session* session = NULL;
  GIVES(PANDO_OK, pando_open_session(client, &session));
  pando_list* list = NULL;
  const pando_row* rows = NULL;
  size_t count = 0;
  GIVES(PANDO_OK, pando_scan(session, tree, NULL, &list));
  GIVES(PANDO_OK, pando_list_size(list, &count));
  GIVES(PANDO_OK, pando_list_rows(list, &rows));
  HOLDS(count == kThreads * kKeys + 1);
  pando_cursor* cursor = NULL;
  GIVES(PANDO_OK, pando_open_cursor(session, tree, NULL, &cursor));
  pando_row row;
  for (size_t i = 0; i < count; ++i) {
    GIVES(PANDO_OK, pando_cursor_next(cursor, &row));
    HOLDS(row.key.size == rows[i].key.size &&
          memcmp(row.key.data, rows[i].key.data, row.key.size) == 0);
  }
  GIVES(PANDO_OUT_OF_RANGE, pando_cursor_next(cursor, &row));

  pando_bytes keys[kKeys];
  char texts[kKeys][16];
  for (int n = 0; n < kKeys; ++n) keys[n] = KeyOf(0, n, texts[n]);
  pando_list* results = NULL;
  GIVES(PANDO_OK, pando_multi_get(session, tree, keys, kKeys, NULL, &results));
  const pando_result* values = NULL;
  GIVES(PANDO_OK, pando_list_results(results, &values));
  for (int n = 0; n < kKeys; ++n) HOLDS(values[n].code == PANDO_OK);
  GIVES(PANDO_OK, pando_close_list(results));
  GIVES(PANDO_OK, pando_close_list(list));
  GIVES(PANDO_CLOSED, pando_close_list(list));
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "c_program REGISTRY\n"), 2;
  pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
  options.registry = argv[1];
  pando_client* client = NULL;
  GIVES(PANDO_OK, pando_connect(&options, &client));
  pando_tree_options limits = PANDO_TREE_OPTIONS_INIT;
  limits.key_bytes_max = 16;
  pando_tree* tree = NULL;
  GIVES(PANDO_OK, pando_create_tree(client, "c_program", &limits, &tree));
  pando_executor* executor = NULL;
  GIVES(PANDO_OK, pando_open_executor(client, NULL, &executor));

  atomic_int answered = 0;
  Worker workers[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    workers[i] = (Worker){client, tree, executor, &answered, i, 0};
    if (pthread_create(&workers[i].thread, NULL, Work, &workers[i]) != 0) return 1;
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(workers[i].thread, NULL);
  GIVES(PANDO_OK, pando_close_executor(executor));
  HOLDS(atomic_load(&answered) == kThreads * kKeys);

  pando_session* session = NULL;
  GIVES(PANDO_OK, pando_open_session(client, &session));
  int64_t sum = 0;
  size_t size = 0;
  GIVES(PANDO_OK, pando_get(session, tree, pando_text("sum"), &sum, sizeof(sum), &size, NULL));
  HOLDS(sum == kThreads * kKeys);
  ReadAll(client, tree);
  GIVES(PANDO_OK, pando_drop_tree(client, "c_program"));
  GIVES(PANDO_OK, pando_close_client(client));
  GIVES(PANDO_CLOSED, pando_put(session, tree, pando_text("k"), pando_text("v"), NULL));
  HOLDS(pando_open_handles() == 0);
  printf("pando %s: %lld\n", pando_version(), (long long)sum);
  return 0;
}
