// Java's property files, in which YCSB's workloads are written.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pando::bench {

using Properties = std::map<std::string, std::string, std::less<>>;

// Lines `name=value`, `name: value` or `name value`; # and ! begin comments; a line that ends with
// a backslash goes on in the next one; \t, \n, \r, \f, \uXXXX (below 80 only) and \ before any
// other character, as java.util.Properties reads them. The last one of a name counts.
// InvalidArgument names the line.
absl::StatusOr<Properties> ParseProperties(std::string_view text);

// "name=value", of a command line: added, or put in the place of what was there.
absl::Status AddProperty(std::string_view assignment, Properties* properties);

}  // namespace pando::bench
