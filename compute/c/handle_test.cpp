// Handles: closed ones and strange ones are told from open ones; ends wait, and come in order.
#include "compute/c/handle.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pando::c {
namespace {

struct Thing : Object {
  static constexpr Kind kKind = Kind::kTree;
  explicit Thing(std::vector<std::string>* ends = nullptr, std::string named = "",
                 std::shared_ptr<Object> parent = nullptr, Kind kind = kKind)
      : Object(kind, std::move(parent)), log(ends), name(std::move(named)) {}
  void End() override {
    has_ended = true;
    if (log != nullptr) log->push_back(name);
  }

  std::vector<std::string>* const log;
  const std::string name;
  std::atomic<bool> has_ended{false};
};

void* OpenThing(const std::shared_ptr<Thing>& thing) {
  auto handle = Open(thing);
  EXPECT_TRUE(handle.ok()) << handle.status();
  return *handle;
}

absl::Status Take(const void* handle) {
  Held<Thing> held;
  return held.Take(handle);
}

TEST(HandleTest, WhatIsClosedIsToldFromWhatIsOpen) {
  const uint64_t before = OpenHandles();
  void* const first = OpenThing(std::make_shared<Thing>());
  EXPECT_EQ(OpenHandles(), before + 1);
  EXPECT_TRUE(Take(first).ok());
  EXPECT_TRUE(Close(first, Kind::kTree).ok());
  EXPECT_EQ(OpenHandles(), before);
  EXPECT_TRUE(IsClosed(Take(first)));
  EXPECT_TRUE(IsClosed(Close(first, Kind::kTree)));
  // The next one has its place, and is another.
  void* const second = OpenThing(std::make_shared<Thing>());
  EXPECT_NE(second, first);
  EXPECT_TRUE(IsClosed(Take(first)));
  EXPECT_TRUE(IsClosed(Close(first, Kind::kTree)));
  EXPECT_TRUE(Take(second).ok());
  EXPECT_TRUE(Close(second, Kind::kTree).ok());
}

TEST(HandleTest, WhatIsNoHandleIsRefused) {
  int local = 0;
  void* const open = OpenThing(std::make_shared<Thing>());
  const auto number = reinterpret_cast<uintptr_t>(open);
  const std::vector<uintptr_t> strange = {0,
                                          1,
                                          reinterpret_cast<uintptr_t>(&local),
                                          number + 1,
                                          number ^ (1 << 19),
                                          UINTPTR_MAX,
                                          UINTPTR_MAX >> 1,
                                          uintptr_t{1} << 63,
                                          number + (uintptr_t{1} << 20)};
  for (const uintptr_t value : strange) {
    const absl::Status status = Take(reinterpret_cast<void*>(value));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << std::hex << value << ": " << status;
  }
  // Another kind's.
  EXPECT_TRUE(absl::IsInvalidArgument(Close(open, Kind::kClient)));
  EXPECT_TRUE(Take(open).ok()) << "and that has not closed it";
  EXPECT_TRUE(Close(open, Kind::kTree).ok());
  EXPECT_TRUE(Close(nullptr, Kind::kTree).ok());
}

TEST(HandleTest, ChildrenEndFirst) {
  std::vector<std::string> ends;
  const auto parent = std::make_shared<Thing>(&ends, "client", nullptr, Kind::kClient);
  void* const client = OpenThing(parent);
  void* const tree = OpenThing(std::make_shared<Thing>(&ends, "tree", parent, Kind::kTree));
  const auto middle = std::make_shared<Thing>(&ends, "session", parent, Kind::kSession);
  void* const session = OpenThing(middle);
  void* const cursor = OpenThing(std::make_shared<Thing>(&ends, "cursor", middle, Kind::kCursor));
  EXPECT_TRUE(Close(client, Kind::kClient).ok());
  EXPECT_EQ(ends, (std::vector<std::string>{"cursor", "session", "tree", "client"}));
  EXPECT_TRUE(IsClosed(Close(tree, Kind::kTree)));
  EXPECT_TRUE(IsClosed(Close(session, Kind::kSession)));
  EXPECT_TRUE(IsClosed(Close(cursor, Kind::kCursor)));
}

TEST(HandleTest, AnEndWaitsForThoseWhoHoldIt) {
  const auto thing = std::make_shared<Thing>();
  void* const handle = OpenThing(thing);
  std::thread closer;
  {
    Held<Thing> held;
    ASSERT_TRUE(held.Take(handle).ok());
    closer = std::thread([&] { EXPECT_TRUE(Close(handle, Kind::kTree).ok()); });
    // Refused as soon as it is being closed, which cannot end before we let go.
    while (!IsClosed(Take(handle))) std::this_thread::yield();
    EXPECT_FALSE(thing->has_ended);
  }
  closer.join();
  EXPECT_TRUE(thing->has_ended);
}

TEST(HandleTest, OneOfManyThreadsClosesIt) {
  constexpr int kThreads = 4, kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    const auto parent = std::make_shared<Thing>(nullptr, "", nullptr, Kind::kClient);
    void* const client = OpenThing(parent);
    const auto thing = std::make_shared<Thing>(nullptr, "", parent);
    void* const handle = OpenThing(thing);
    std::atomic<int> closed = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          Held<Thing> held;
          if (held.Take(handle).ok()) {
            EXPECT_FALSE(held->has_ended);
          }
        }
        if (t == 0) {
          EXPECT_TRUE(Close(client, Kind::kClient).ok());
          EXPECT_TRUE(thing->has_ended);
        } else if (Close(handle, Kind::kTree).ok()) {
          ++closed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(closed, 1);
    EXPECT_TRUE(parent->has_ended);
  }
}

}  // namespace
}  // namespace pando::c
