// How far something long has come, for people.
#pragma once

#include <cstdint>
#include <string>

namespace pando {

// "loaded 120000 keys (24 %), 60.0 k a second, 6 s left". `part` of `total` is done, by whatever is
// counted; total 0: unknown.
std::string ProgressText(const std::string& verb, uint64_t keys, uint64_t part, uint64_t total,
                         double seconds);

}  // namespace pando
