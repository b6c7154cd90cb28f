// Histories in the terms of checkers that know get, put, insert, update, delete and scan alone.
#pragma once

#include <vector>

#include "bench/history/history.h"

namespace pando::history {

// Each conditional operation as what follows from it and can be said so: weaker than what was said
// (README.md). Values that were read and not stored in these terms get a put of unknown outcome
// where only an upsert of unknown outcome can have stored them. `final`: as far as it is known.
std::vector<Operation> InKnownTerms(const std::vector<Operation>& operations,
                                    const State& final = {});

}  // namespace pando::history
