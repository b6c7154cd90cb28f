// Runs a fuzz target on mutated seeds, the same ones every time. Each iteration depends on the seed
// and its own number only, so that one can be repeated alone:
//
//   target [iterations] [seed] [first iteration]      default 100000 1 0
//   target FILE...                                    one input from each file
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/fuzz.h"
#include "common/base/random.h"

// Sanitizers end the process without a signal; they call this first.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace pando {
namespace {

struct Position {
  const char* program = "";
  unsigned long long seed = 0, iteration = 0;
} position;

void Report() {
  std::fprintf(stderr, "fuzz: failed; repeat with: %s 1 %llu %llu\n", position.program,
               position.seed, position.iteration);
}
void OnAbort(int) {
  Report();
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

std::string::difference_type At(Random* random, const std::string& input) {
  return static_cast<std::string::difference_type>(random->Uniform(input.size() + 1));
}

void MutateOnce(Random* random, const std::vector<std::string>& seeds, std::string* input) {
  constexpr size_t kInputBytesMax = 64 * 1024;
  constexpr char kEdges[] = {0, 1, 0x7f, char(0x80), char(0xff), 8, 15, 16, 64};
  const auto at = At(random, *input);
  const size_t rest = input->size() - static_cast<size_t>(at);
  switch (random->Uniform(8)) {
    case 0:
      if (rest > 0) (*input)[static_cast<size_t>(at)] ^= static_cast<char>(1 << random->Uniform(8));
      break;
    case 1:
      if (rest > 0) (*input)[static_cast<size_t>(at)] = static_cast<char>(random->Next());
      break;
    case 2:
      if (rest > 0) (*input)[static_cast<size_t>(at)] = kEdges[random->Uniform(sizeof(kEdges))];
      break;
    case 3:
      input->insert(static_cast<size_t>(at), 1 + random->Uniform(8),
                    static_cast<char>(random->Next()));
      break;
    case 4:
      input->erase(static_cast<size_t>(at), 1 + random->Uniform(8));
      break;
    case 5:  // a piece of the input again
      input->insert(static_cast<size_t>(at), input->substr(random->Uniform(input->size() + 1), 32));
      break;
    case 6: {  // the end of another seed
      const std::string& other = seeds[random->Uniform(seeds.size())];
      input->replace(static_cast<size_t>(at), rest,
                     other.substr(random->Uniform(other.size() + 1)));
      break;
    }
    case 7:
      if (random->Chance(0.1)) input->resize(static_cast<size_t>(at));
      break;
  }
  if (input->size() > kInputBytesMax) input->resize(kInputBytesMax);
}

void RunOne(const std::string& input) {
  // A block of its own, so that ASan sees one byte too many.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

int RunFiles(int count, char** files) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(files[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "fuzz: cannot read %s\n", files[i]);
      return 1;
    }
    RunOne({std::istreambuf_iterator<char>(file), {}});
  }
  return 0;
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

int Main(int argc, char** argv) {
  if (argc > 1 && !IsNumber(argv[1])) return RunFiles(argc - 1, argv + 1);
  const auto argument = [&](int i, unsigned long long otherwise) {
    return i < argc ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  const unsigned long long iterations = argument(1, 100'000), first = argument(3, 0);
  position.program = argv[0];
  position.seed = argument(2, 1);
  std::signal(SIGABRT, OnAbort);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(Report);

  const std::vector<std::string> seeds = FuzzSeeds();
  for (unsigned long long i = first; i < first + iterations; ++i) {
    position.iteration = i;
    Random random(DeriveSeed(position.seed, i));
    std::string input = seeds[i % seeds.size()];
    // The seeds themselves first.
    for (uint64_t n = i < seeds.size() ? 0 : 1 + random.Uniform(6); n > 0; --n) {
      MutateOnce(&random, seeds, &input);
    }
    RunOne(input);
  }
  std::printf("fuzz: %llu iterations, seed %llu\n", iterations, position.seed);
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) { return pando::Main(argc, argv); }
