// The headers in C11, and the layout that programs which exist already rely on. What is in here may
// be added to, and never changed. headers_test.cpp compiles the same as C++.
#include <stddef.h>
#include <stdint.h>

#include "pando.h"

#ifndef __cplusplus
#define HOLDS(condition) _Static_assert(condition, #condition)
#else
#define HOLDS(condition) static_assert(condition, #condition)
#endif

// The end of a version of a struct that may grow.
#define ENDS(type, last, bytes) \
  HOLDS(offsetof(type, last) + sizeof(((type*)0)->last) == (bytes) && sizeof(type) >= (bytes))

HOLDS(sizeof(pando_code) == 4);
HOLDS(sizeof(pando_bytes) == 16);
HOLDS(sizeof(pando_row) == 32 && offsetof(pando_row, value) == 16);
HOLDS(sizeof(pando_result) == 40 && offsetof(pando_result, value) == 8 &&
      offsetof(pando_result, message) == 24);
HOLDS(sizeof(pando_write) == 64 && offsetof(pando_write, key) == 8 &&
      offsetof(pando_write, value) == 24 && offsetof(pando_write, expected) == 40 &&
      offsetof(pando_write, function) == 56);
HOLDS(sizeof(pando_operation_cost) == 32);
HOLDS(sizeof(pando_counter) == 16);

ENDS(pando_client_options, seed, 192);
ENDS(pando_client_options, spread_ranges, 200);
ENDS(pando_client_options, value_places_bytes, 208);
ENDS(pando_client_options, service_threads, 216);
ENDS(pando_client_options, flush_threads, 224);
ENDS(pando_client_options, ranges_min, 232);
ENDS(pando_client_options, dirty_percent, 240);
ENDS(pando_client_options, lend_after_ms, 248);
HOLDS(offsetof(pando_client_options, registry) == 8);
HOLDS(offsetof(pando_client_options, operation_timeout_ms) == 48);
HOLDS(offsetof(pando_client_options, owner) == 96);
HOLDS(offsetof(pando_client_options, rdma_device) == 128);
ENDS(pando_tree_options, mode, 40);
ENDS(pando_tree_options, narrow_reads, 48);
ENDS(pando_tree_options, delete_persistence_ms, 56);
ENDS(pando_tree_options, inline_value_bytes_max, 64);
HOLDS(offsetof(pando_tree_options, key_bytes_max) == 8);
ENDS(pando_tree_info, mode, 48);
ENDS(pando_tree_info, narrow_reads, 56);
ENDS(pando_tree_info, delete_persistence_ms, 64);
ENDS(pando_tree_info, inline_value_bytes_max, 72);
ENDS(pando_server_info, counters_count, 72);
ENDS(pando_range_info, address, 64);
ENDS(pando_member_info, log_bytes, 72);
ENDS(pando_client_stats, owned_refused, 368);
ENDS(pando_client_stats, owned_oldest_tombstone_ms, 400);
ENDS(pando_client_stats, place_bytes, 424);
ENDS(pando_client_stats, owned_log_capacity_bytes, 472);
ENDS(pando_client_stats, owned_lent, 480);
HOLDS(offsetof(pando_client_stats, cache_hits) == 80);
HOLDS(offsetof(pando_client_stats, owned_hits) == 248);
ENDS(pando_operation_options, cost, 24);
ENDS(pando_cursor_options, cost, 120);
HOLDS(offsetof(pando_cursor_options, prefix) == 64);
ENDS(pando_executor_options, queue_max, 24);
ENDS(pando_operation, timeout_ms, 120);
HOLDS(offsetof(pando_operation, function) == 64);
ENDS(pando_answer, rows_count, 64);
ENDS(pando_size_estimate, relative_error, 56);
ENDS(pando_size_estimate, cells_bytes, 64);
ENDS(pando_check_options, timeout_ms, 40);
ENDS(pando_check_report, nodes_orphans, 120);
ENDS(pando_check_report, cells_unused, 144);
ENDS(pando_sweep_result, left, 32);
ENDS(pando_range_erased, next, 40);
ENDS(pando_log_record, message, 64);

// Codes and kinds are part of it.
HOLDS(PANDO_OUTCOME_UNKNOWN == 2 && PANDO_DATA_LOSS == 15 && PANDO_UNAUTHENTICATED == 16);
HOLDS(PANDO_CONDITION_FAILED == 32 && PANDO_CLOSED == 33);
HOLDS(PANDO_MOVE_NEXT == 0 && PANDO_MOVE_TO_FIRST == 2 && PANDO_MOVE_SEEK == 4);
HOLDS(PANDO_WRITE_UPSERT == 6 && PANDO_OPERATION_UPSERT == 8 && PANDO_UPSERT_APPEND == 4);
HOLDS(PANDO_UPSERT_FIRST_REGISTERED == 1024);
HOLDS(PANDO_MODE_OWNED == 1 && PANDO_TECHNIQUES_FG_PLUS == 2 && PANDO_LOG_FATAL == 3);

// What begins with a size is made of the macros in both languages.
uint64_t headers_test_sizes(void);
uint64_t headers_test_sizes(void) {
  const pando_client_options client = PANDO_CLIENT_OPTIONS_INIT;
  const pando_tree_options tree = PANDO_TREE_OPTIONS_INIT;
  const pando_operation_options operation = PANDO_OPERATION_OPTIONS_INIT;
  const pando_cursor_options cursor = PANDO_CURSOR_OPTIONS_INIT;
  const pando_executor_options executor = PANDO_EXECUTOR_OPTIONS_INIT;
  const pando_operation one = PANDO_OPERATION_INIT;
  const pando_check_options check = PANDO_CHECK_OPTIONS_INIT;
  return client.size + tree.size + operation.size + cursor.size + executor.size + one.size +
         check.size + pando_text("text").size;
}
