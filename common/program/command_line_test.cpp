#include "common/program/command_line.h"

#include <fcntl.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

DEFINE_int32(count, 3, "how many");
DEFINE_bool(fast, true, "whether it is fast");
DEFINE_string(name, "", "what it is called");
DEFINE_string(watch, "", "how often");

namespace pando {
namespace {

using testing::ElementsAre;
using testing::ExitedWithCode;

const ProgramInfo kProgram = {
    .name = "test", .summary = "A test.", .source = __FILE__, .takes_arguments = true};

std::vector<std::string> Parse(std::vector<std::string> words,
                               const ProgramInfo& program = kProgram) {
  std::vector<char*> argv = {const_cast<char*>("test")};
  for (std::string& word : words) argv.push_back(word.data());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), program);
}

// The log can be initialised once a process, so each case runs in a process of its own.
#define EXPECT_PARSES(words, condition) \
  EXPECT_EXIT(                          \
      {                                 \
        const auto rest = Parse words;  \
        std::exit(condition ? 42 : 43); \
      },                                \
      ExitedWithCode(42), "")

TEST(CommandLineDeathTest, SetsFlagsInEveryForm) {
  EXPECT_PARSES(({}), (FLAGS_count == 3 && FLAGS_fast && rest.empty()));
  EXPECT_PARSES(({"--count=5", "--nofast"}), (FLAGS_count == 5 && !FLAGS_fast));
  EXPECT_PARSES(({"-count", "6", "--fast=false"}), (FLAGS_count == 6 && !FLAGS_fast));
  EXPECT_PARSES(({"--name="}), FLAGS_name.empty());
  EXPECT_PARSES(({"--name=a=b"}), (FLAGS_name == "a=b"));
}

TEST(CommandLineDeathTest, ReturnsArgumentsBetweenFlags) {
  EXPECT_PARSES(({"get", "--count=7", "key"}),
                (FLAGS_count == 7 && rest == std::vector<std::string>{"get", "key"}));
  EXPECT_PARSES(({"get", "--", "--count=7", "-"}),
                (FLAGS_count == 3 && rest == std::vector<std::string>{"get", "--count=7", "-"}));
}

TEST(CommandLineDeathTest, WhatIsWrongIsSaidAndExitsWithTwo) {
  EXPECT_EXIT(Parse({"--colour=red"}), ExitedWithCode(2), "there is no flag --colour");
  EXPECT_EXIT(Parse({"--count=many"}), ExitedWithCode(2),
              "--count takes a value of type int32, not 'many'");
  EXPECT_EXIT(Parse({"--count"}), ExitedWithCode(2), "--count needs a value");
  EXPECT_EXIT(Parse({"--noname"}), ExitedWithCode(2), "there is no flag --noname");
  ProgramInfo strict = kProgram;
  strict.takes_arguments = false;
  EXPECT_EXIT(Parse({"word"}, strict), ExitedWithCode(2), "'word' is not a flag");
}

TEST(CommandLineDeathTest, AFlagMayHaveAValueOfItsOwn) {
  ProgramInfo program = kProgram;
  program.bare_values = {{"watch", "2"}};
  EXPECT_PARSES(({"--watch", "7"}, program),
                (FLAGS_watch == "2" && rest == std::vector<std::string>{"7"}));
  EXPECT_PARSES(({"--watch=5"}, program), (FLAGS_watch == "5" && rest.empty()));
}

TEST(CommandLineDeathTest, SaysWhichFlagsWereGiven) {
  const auto given = [](const std::string& name) {
    for (const DefinedFlag& flag : DefinedFlags(kProgram)) {
      if (flag.name == name) return flag.given;
    }
    return false;
  };
  EXPECT_PARSES(({"--count=3", "--nofast"}),
                (given("count") && given("fast") && !given("name") && rest.empty()));
}

TEST(CommandLineDeathTest, AProgramMayHaveHelpOfItsOwn) {
  ProgramInfo program = kProgram;
  program.help = [](const std::vector<std::string>& arguments) {
    std::fprintf(stderr, "help of %s", arguments.empty() ? "all" : arguments.front().c_str());
    return std::string();
  };
  EXPECT_EXIT(Parse({"--help"}, program), ExitedWithCode(0), "help of all");
  EXPECT_EXIT(Parse({"get", "--count=1", "--help", "x"}, program), ExitedWithCode(0),
              "help of get");
}

TEST(CommandLineDeathTest, AWordThatLooksLikeAFlagIsToldHowToBeNone) {
  EXPECT_EXIT(Parse({"-5"}), ExitedWithCode(2), "if '-5' is an argument, put -- before it");
}

TEST(CommandLineDeathTest, NoLaterFileGetsAStandardDescriptor) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        close(STDERR_FILENO);
        Parse({});
        const bool later = open("/dev/null", O_RDONLY) > STDERR_FILENO;
        // What fails without a file fails with this one.
        std::_Exit(later && write(STDERR_FILENO, "x", 1) < 0 ? 42 : 43);
      },
      ExitedWithCode(42), "");
}

TEST(CommandLineDeathTest, HelpAndVersionSucceed) {
  EXPECT_EXIT(Parse({"--help"}), ExitedWithCode(0), "");
  EXPECT_EXIT(Parse({"--version"}), ExitedWithCode(0), "");
}

TEST(CommandLineDeathTest, HelpThatCannotBeWrittenFails) {
  const auto parse_into_full = [](const char* word) {
    if (freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(43);
    Parse({word});
  };
  for (const char* word : {"--help", "--version"}) {
    EXPECT_EXIT(parse_into_full(word), ExitedWithCode(74),
                "test: writing the output: No space left on device");
  }
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) std::_Exit(43);
        close(ends[0]);
        signal(SIGPIPE, SIG_IGN);
        Parse({"--help"});
      },
      ExitedWithCode(0), "");
}

TEST(RegistryFromFlagTest, TheFlagWinsOverTheEnvironment) {
  setenv("PANDO_REGISTRY", "/a", 1);
  setenv("XDG_RUNTIME_DIR", "/b", 1);
  EXPECT_EQ(RegistryFromFlag("/c"), "/c");
  EXPECT_EQ(RegistryFromFlag(""), "/a");
  unsetenv("PANDO_REGISTRY");
  EXPECT_EQ(RegistryFromFlag(""), "/b/pando");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(RegistryFromFlag(""), "");
}

}  // namespace
}  // namespace pando
