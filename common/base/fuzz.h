// Fuzz targets. A target is one file that defines the two functions below; it is linked with
// fuzz_driver.cpp (any compiler, a fixed number of iterations, part of the tests) or with libFuzzer
// (clang, PANDO_LIBFUZZER=ON).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Does something with any bytes. Aborts where it finds a bug; always returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace pando {

// Inputs that reach far; the driver mutates them. Not empty.
std::vector<std::string> FuzzSeeds();

}  // namespace pando
