// Checks for our own bugs, and the log of the programs. glog underneath: this is the only file that
// includes its header, and it is never installed. The library never initialises glog; a program's
// main() does.
//
//   PANDO_CHECK(count > 0) << "no servers";   PANDO_CHECK_EQ(a, b);   PANDO_LOG(INFO) <<
//   "listening";
#pragma once

#include <glog/logging.h>

#define PANDO_LOG(severity) LOG(severity)

#define PANDO_CHECK(condition) CHECK(condition)
#define PANDO_CHECK_EQ(a, b) CHECK_EQ(a, b)
#define PANDO_CHECK_NE(a, b) CHECK_NE(a, b)
#define PANDO_CHECK_LT(a, b) CHECK_LT(a, b)
#define PANDO_CHECK_LE(a, b) CHECK_LE(a, b)
#define PANDO_CHECK_GT(a, b) CHECK_GT(a, b)
#define PANDO_CHECK_GE(a, b) CHECK_GE(a, b)
// For an absl::Status that only a bug of ours can make an error.
#define PANDO_CHECK_OK(expression)                                                         \
  for (const absl::Status& pando_check_status_ = (expression); !pando_check_status_.ok();) \
  LOG(FATAL) << "Check failed: " #expression " is " << pando_check_status_ << " "

// Not in release builds: for conditions on the hot path.
#define PANDO_DCHECK(condition) DCHECK(condition)
#define PANDO_DCHECK_EQ(a, b) DCHECK_EQ(a, b)
#define PANDO_DCHECK_LT(a, b) DCHECK_LT(a, b)
#define PANDO_DCHECK_LE(a, b) DCHECK_LE(a, b)
