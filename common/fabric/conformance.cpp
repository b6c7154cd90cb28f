// The suite's fixture.
#include "common/fabric/conformance.h"

#include <cstring>
#include <thread>
#include <utility>

namespace pando {

std::string EchoHandler::Handle(PeerId peer, std::string_view request) {
  std::lock_guard lock(mutex_);
  callers_.insert(peer);
  return "echo:" + std::string(request);
}

void EchoHandler::OnPeerGone(PeerId peer) {
  std::lock_guard lock(mutex_);
  gone_.push_back(peer);
}

int64_t EchoHandler::OnTimer(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  if (timer_due_ns_ <= now_ns) {
    ++timers_passed_;
    timer_due_ns_ = kNeverNs;
  }
  if (timer_due_ns_ == kNeverNs && timers_left_ > 0) {
    --timers_left_;
    timer_due_ns_ = now_ns + timer_delay_ns_;
  }
  return timer_due_ns_;
}

void EchoHandler::AskForTimers(int count, int64_t delay_ns) {
  std::lock_guard lock(mutex_);
  timers_left_ = count;
  timer_delay_ns_ = delay_ns;
}

int EchoHandler::timers_passed() const {
  std::lock_guard lock(mutex_);
  return timers_passed_;
}

std::set<PeerId> EchoHandler::callers() const {
  std::lock_guard lock(mutex_);
  return callers_;
}

std::vector<PeerId> EchoHandler::gone() const {
  std::lock_guard lock(mutex_);
  return gone_;
}

void FabricConformance::Start(const ConformanceOptions& options) {
  TearDown();
  options_ = options;
  std::vector<ControlHandler*> handlers;
  for (int i = 1; i <= options.servers; ++i) {
    auto handler = std::make_unique<EchoHandler>();
    handlers.push_back(handler.get());
    handlers_.emplace(static_cast<ServerId>(i), std::move(handler));
  }
  cluster_ = GetParam().make(options, handlers);
  ASSERT_NE(cluster_, nullptr);
}

void FabricConformance::TearDown() {
  cluster_.reset();
  handlers_.clear();
}

std::unique_ptr<Endpoint> FabricConformance::Connect(int fabric) {
  auto endpoint = cluster_->fabric(fabric).Connect(static_cast<uint16_t>(fabric + 1), 1);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return endpoint.ok() ? *std::move(endpoint) : nullptr;
}

LocalBuffer FabricConformance::Buffer(Endpoint& endpoint, size_t bytes) {
  const auto buffer = endpoint.AllocateBuffer(bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return buffer.ok() ? *buffer : LocalBuffer{};
}

void FabricConformance::Run(Endpoint& endpoint, Chain& chain) {
  endpoint.Post(&chain);
  Finish(endpoint, chain);
}

void FabricConformance::Finish(Endpoint& endpoint, Chain& chain) {
  while (!chain.done()) {
    if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
  }
}

void FabricConformance::Finish(Endpoint& endpoint, PendingCall& call) {
  while (!call.done) {
    if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
  }
}

void FabricConformance::RunActors(std::span<Actor* const> actors) {
  int fabric = 0;
  for (Actor* actor : actors) actor->endpoint = Connect(fabric++ % options_.fabrics);
  if (cluster_->threads_allowed()) {
    std::vector<std::thread> threads;
    for (Actor* actor : actors) {
      threads.emplace_back([this, actor] {
        while (actor->Step()) Run(*actor->endpoint, actor->chain);
      });
    }
    for (std::thread& thread : threads) thread.join();
  } else {
    std::set<Actor*> waiting, running(actors.begin(), actors.end());
    while (!running.empty()) {
      for (Actor* actor : actors) {
        if (!running.contains(actor) || (waiting.contains(actor) && !actor->chain.done())) continue;
        if (actor->Step()) {
          waiting.insert(actor);
          actor->endpoint->Post(&actor->chain);
        } else {
          running.erase(actor);
        }
      }
      size_t completions = 0;
      for (Actor* actor : actors) completions += actor->endpoint->Poll();
      if (completions > 0 || running.empty()) continue;
      bool all_wait = true;
      for (Actor* actor : running) all_wait &= !actor->chain.done();
      Endpoint& driver = *(*running.begin())->endpoint;
      if (all_wait) driver.Wait(driver.clock().NowNs() + kSecondNs);
    }
  }
  for (Actor* actor : actors) actor->endpoint.reset();
}

uint64_t FabricConformance::Word(MemorySpace space, uint64_t offset, ServerId server) {
  const ServerMemory memory = cluster_->memory(server);
  uint64_t word;
  std::memcpy(&word, (space == MemorySpace::kMain ? memory.main : memory.locks).data() + offset, 8);
  return word;
}

void FabricConformance::SetWord(MemorySpace space, uint64_t offset, uint64_t value,
                                ServerId server) {
  const ServerMemory memory = cluster_->memory(server);
  std::memcpy((space == MemorySpace::kMain ? memory.main : memory.locks).data() + offset, &value,
              8);
}

}  // namespace pando
