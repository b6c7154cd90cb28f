// What the tests of messages share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace pando {

// The body is parsed; every shorter one, and one a byte longer, is DataLoss.
template <typename Parse>
void ExpectExactLength(const std::string& body, Parse parse) {
  ASSERT_TRUE(parse(body).ok()) << parse(body).status();
  for (size_t size = 0; size < body.size(); ++size) {
    ASSERT_EQ(parse(body.substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  ASSERT_EQ(parse(body + 'x').status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace pando
