// The rules of common/protocol.md, and how each is shown to be needed.
#pragma once

#include <string>

namespace pando {

// A line a variant (common/base/rule.h), in the order of the protocol, between tabs: the rule, the
// variant, what does not hold in it, and the command that fails with it.
std::string ListRules();

}  // namespace pando
