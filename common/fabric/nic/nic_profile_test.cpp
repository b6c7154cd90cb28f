#include "common/fabric/nic/nic_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace pando {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kGroups[] = {"cpu", "nic", "link", "pcie", "atomics", "calls"};

std::filesystem::path Folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / PANDO_NIC_PROFILES;
}

Json Valid() {
  std::ifstream stream(Folder() / "connectx5-100g.json");
  std::stringstream text;
  text << stream.rdbuf();
  return Json::parse(text.str());
}

std::string Refusal(const Json& json) {
  const auto profile = NicProfile::Parse(json.dump());
  EXPECT_TRUE(absl::IsInvalidArgument(profile.status()));
  return std::string(profile.status().message());
}

TEST(NicProfileTest, ThoseThatComeWithPandoAreValid) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const auto profile = NicProfile::Load(entry.path());
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(profile->name, entry.path().stem().string());
    EXPECT_GE(profile->published.size(), 5u);
    ++files;
  }
  EXPECT_EQ(files, 3);
}

TEST(NicProfileTest, ADirectoryIsNotRead) {
  const absl::Status status = NicProfile::Load(Folder()).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot read"));
}

TEST(NicProfileTest, ValuesArriveWhereTheyBelong) {
  const auto profile = NicProfile::Parse(Valid().dump());
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->cpu.post_chain_ns, 80);
  EXPECT_EQ(profile->link.gbits, 100);
  EXPECT_EQ(profile->atomics.waiting_max, 64);
  EXPECT_EQ(profile->atomics.host_hold_ns, 357);
  EXPECT_EQ(profile->published[0].unit, "us");
  EXPECT_EQ(profile->published[0].value, 2.18);
  EXPECT_FALSE(profile->published[0].window);
  EXPECT_TRUE(profile->published[4].window);
}

TEST(NicProfileTest, EveryConstantIsNeeded) {
  const Json valid = Valid();
  for (const char* group : kGroups) {
    for (const auto& [name, unused] : valid[group].items()) {
      const std::string field = std::string(group) + "." + name;
      Json json = valid;
      json[group].erase(name);
      EXPECT_EQ(Refusal(json), "'" + field + "' is missing");
      json = valid;
      json[group][name]["value"] = -1;
      EXPECT_EQ(Refusal(json), "'" + field + ".value' is negative");
      json[group][name]["value"] = "7";
      EXPECT_EQ(Refusal(json), "'" + field + ".value' is not a number");
      json[group][name]["value"] = 1e300;
      EXPECT_EQ(Refusal(json), "'" + field + ".value' is too large");
      json[group][name].erase("value");
      EXPECT_EQ(Refusal(json), "'" + field + ".value' is missing");
      json = valid;
      json[group][name].erase("source");
      EXPECT_EQ(Refusal(json), "'" + field + ".source' is missing");
      json[group][name]["source"] = "";
      EXPECT_EQ(Refusal(json), "'" + field + ".source' is not a text");
    }
    Json json = valid;
    json.erase(group);
    EXPECT_EQ(Refusal(json), "'" + std::string(group) + "' is missing");
  }
}

TEST(NicProfileTest, WhatDividesIsNotZero) {
  for (const auto& [group, name] : {std::pair{"link", "gbits"},
                                    {"link", "packet_bytes"},
                                    {"pcie", "gbits"},
                                    {"atomics", "buckets"},
                                    {"atomics", "waiting_max"}}) {
    Json json = Valid();
    json[group][name]["value"] = 0;
    EXPECT_THAT(Refusal(json), HasSubstr("is 0"));
  }
  Json json = Valid();
  json["atomics"]["buckets"]["value"] = 1000;
  EXPECT_EQ(Refusal(json), "'atomics.buckets.value' is not a power of two");
  json = Valid();
  json["atomics"]["waiting_max"]["value"] = 0.5;
  EXPECT_EQ(Refusal(json), "'atomics.waiting_max.value' is not a whole number");
}

TEST(NicProfileTest, SlipsAreNamed) {
  Json json = Valid();
  json["nic"]["sned_ns"] = json["nic"]["send_ns"];
  EXPECT_EQ(Refusal(json), "'nic.sned_ns' is unknown");
  json = Valid();
  json["nick"] = json["nic"];
  EXPECT_EQ(Refusal(json), "'nick' is unknown");
  json = Valid();
  json["nic"]["send_ns"] = 8.48;
  EXPECT_THAT(Refusal(json), HasSubstr("'nic.send_ns' is not an object"));
  json = Valid();
  json["name"] = "";
  EXPECT_THAT(Refusal(json), HasSubstr("'name'"));
  json = Valid();
  json["published"][2]["verb"] = "send";
  EXPECT_EQ(Refusal(json), "'published[2].verb' is not read, write, cas or lock");
  json = Valid();
  json["published"][0]["bytes"] = 12;
  EXPECT_THAT(Refusal(json), HasSubstr("published[0].bytes"));
  json = Valid();
  json["published"][1]["window"] = 1;
  EXPECT_EQ(Refusal(json), "'published[1].window' is not a truth value");
  json = Valid();
  json["published"][0].erase("source");
  EXPECT_EQ(Refusal(json), "'published[0].source' is missing");
}

TEST(NicProfileTest, WhatIsNoProfile) {
  for (const char* text : {"", "[]", "7", "{", "{}", "null", "\xff\xfe"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(NicProfile::Parse(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsNotFound(NicProfile::Load("/nowhere/a.json").status()));
  EXPECT_FALSE(NicProfile::Load("/").ok());
}

}  // namespace
}  // namespace pando
