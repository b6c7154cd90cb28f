#include "compute/core/membership.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pando {

absl::Status TreeFate::status() const {
  std::lock_guard lock(mutex_);
  return why_;
}

void TreeFate::Lose(absl::Status why) {
  std::lock_guard lock(mutex_);
  if (!why_.ok()) return;
  why_ = std::move(why);
  lost_.store(true, std::memory_order_release);
}

const Membership::Member* Membership::View::Find(ServerId server) const {
  const auto member = std::find_if(members.begin(), members.end(),
                                   [server](const Member& m) { return m.id == server; });
  return member == members.end() ? nullptr : &*member;
}

Membership::Membership() : view_(std::make_shared<View>()) {}

std::shared_ptr<const Membership::View> Membership::view() const {
  std::lock_guard lock(mutex_);
  return view_;
}

std::vector<ServerId> Membership::Ids() const {
  std::vector<ServerId> ids;
  for (const Member& member : view()->members) ids.push_back(member.id);
  return ids;
}

void Membership::Publish(ServerId server, uint64_t life, uint32_t added) {
  std::lock_guard lock(mutex_);
  auto next = std::make_shared<View>(*view_);
  next->generation = view_->generation + 1;
  next->added = added;
  std::erase_if(next->members, [server](const Member& member) { return member.id == server; });
  next->members.push_back({server, life, next->generation});
  std::sort(next->members.begin(), next->members.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
  view_ = std::move(next);
  generation_.store(view_->generation, std::memory_order_release);
}

uint64_t Membership::AskForLook() {
  std::lock_guard lock(mutex_);
  if (!looking_) return 0;
  wanted_ = true;
  asked_.notify_one();
  return begun_ + 1;
}

void Membership::StartLooking() {
  std::lock_guard lock(mutex_);
  looking_ = true;
}

bool Membership::AwaitLook(int64_t pause_ms) {
  std::unique_lock lock(mutex_);
  asked_.wait_for(lock, std::chrono::milliseconds(pause_ms),
                  [this] { return wanted_ || !looking_; });
  wanted_ = false;
  if (looking_) ++begun_;
  return looking_;
}

void Membership::StopLooking() {
  {
    std::lock_guard lock(mutex_);
    looking_ = false;
  }
  asked_.notify_all();
}

}  // namespace pando
