// The registry contract (registry.h), test by test, for every kind of registry.
//
// A test file instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Local, RegistryConformance,
//                            testing::Values(ConformanceRegistry{"local", MakeLocal}),
//                            ConformanceName);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/registry/registry.h"
#include "gtest/gtest.h"

namespace pando {

// For the tests of all registries.
inline ServerLocation At(ServerId id, const std::string& address) { return {id, address}; }

// Where the registries of one test are: a directory, a memcached.
class RegistryPlace {
 public:
  virtual ~RegistryPlace() = default;
  // What OpenRegistry() takes. Another one for each `cluster`, a word; all are empty at first.
  virtual std::string Name(const std::string& cluster) const = 0;
};

struct ConformanceRegistry {
  const char* name;
  std::function<std::unique_ptr<RegistryPlace>()> make;
};

class RegistryConformance : public testing::TestWithParam<ConformanceRegistry> {
 protected:
  RegistryConformance() : place_(GetParam().make()) {}

  std::string name() const { return place_->Name("here"); }
  std::unique_ptr<Registry> Open() const;

  std::unique_ptr<RegistryPlace> place_;
};

std::string ConformanceName(const testing::TestParamInfo<ConformanceRegistry>& info);

}  // namespace pando
