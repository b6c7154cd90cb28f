#include "common/program/rdma_flags.h"

#include <unistd.h>

#include <cstdlib>

#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ExitedWithCode;

const ProgramInfo kProgramOverRdma = {
    .name = "test", .summary = "A test.", .source = __FILE__, .shared_source = kRdmaFlagsSource};

RdmaPath PathFrom(std::vector<std::string> words) {
  std::vector<char*> argv = {const_cast<char*>("test")};
  for (std::string& word : words) argv.push_back(word.data());
  ParseCommandLine(static_cast<int>(argv.size()), argv.data(), kProgramOverRdma);
  return RdmaPathFromFlags(kProgramOverRdma);
}

// The log can be initialised once a process, so each case runs in a process of its own.
#define EXPECT_PATH(words, condition)     \
  EXPECT_EXIT(                            \
      {                                   \
        const auto path = PathFrom words; \
        std::exit(condition ? 42 : 43);   \
      },                                  \
      ExitedWithCode(42), "")

TEST(RdmaFlagsDeathTest, WhatIsNotGivenIsFound) {
  EXPECT_PATH(
      ({}), (path.device.empty() && path.port == 0 && path.gid_index == -1 && path.mtu_bytes == 0));
  EXPECT_PATH(({"--gid_index=-1", "--mtu=0"}), (path.gid_index == -1 && path.mtu_bytes == 0));
}

TEST(RdmaFlagsDeathTest, EachCanBeGiven) {
  EXPECT_PATH(
      ({"--device=rxe0", "--port=2", "--gid_index=3", "--mtu=1024"}),
      (path.device == "rxe0" && path.port == 2 && path.gid_index == 3 && path.mtu_bytes == 1024));
  EXPECT_PATH(({"--port=255", "--gid_index=0", "--mtu=4096"}),
              (path.port == 255 && path.gid_index == 0 && path.mtu_bytes == 4096));
}

TEST(RdmaFlagsDeathTest, PacketsCanBeMarked) {
  EXPECT_PATH(({}), (path.traffic_class == 0 && path.service_level == 0 && path.pkey_index == 0));
  EXPECT_PATH(({"--traffic_class=106", "--service_level=3", "--pkey_index=1"}),
              (path.traffic_class == 106 && path.service_level == 3 && path.pkey_index == 1));
  EXPECT_EXIT(PathFrom({"--traffic_class=256"}), ExitedWithCode(2),
              "--traffic_class is 0 to 255, not 256");
  EXPECT_EXIT(PathFrom({"--service_level=16"}), ExitedWithCode(2),
              "--service_level is 0 to 15, not 16");
  EXPECT_EXIT(PathFrom({"--pkey_index=-1"}), ExitedWithCode(2), "--pkey_index is 0 to 65535");
}

TEST(RdmaFlagsDeathTest, WhatNoDeviceHasIsRefused) {
  for (const char* port : {"0", "-1", "256"}) {
    EXPECT_EXIT(PathFrom({std::string("--port=") + port}), ExitedWithCode(2),
                std::string("--port is 1 to 255, not ") + port);
  }
  for (const char* index : {"-2", "256"}) {
    EXPECT_EXIT(PathFrom({std::string("--gid_index=") + index}), ExitedWithCode(2),
                std::string("--gid_index is 0 to 255, or -1 .*, not ") + index);
  }
  for (const char* mtu : {"1500", "128", "8192", "-1024", "1"}) {
    EXPECT_EXIT(PathFrom({std::string("--mtu=") + mtu}), ExitedWithCode(2),
                std::string("--mtu is 256, .*, not ") + mtu);
  }
  EXPECT_EXIT(PathFrom({"--mtu=4K"}), ExitedWithCode(2), "--mtu takes a value of type int32");
}

TEST(RdmaFlagsDeathTest, HelpListsThem) {
  EXPECT_EXIT(
      {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        PathFrom({"--help"});
      },
      ExitedWithCode(0),
      "--device .*--gid_index .*--mtu .*--pkey_index .*--port .*--service_level "
      ".*--traffic_class ");
}

}  // namespace
}  // namespace pando
