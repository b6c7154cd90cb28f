// A link that a peer has made to a service, and what he has asked on it. Internal to compute/peer;
// peer_service.h has the contract.
//
// The port's thread calls the handler. Everything else happens in coroutines of one session of the
// service. Kept by the service until the link has ended, and by what is under way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/fabric/peer.h"
#include "common/sched/scheduler.h"
#include "compute/core/session_context.h"
#include "compute/peer/message_thrift.h"
#include "compute/peer/peer_format.h"

namespace pando {

class PeerService;

class ServedPeer final : public PeerHandler, public std::enable_shared_from_this<ServedPeer> {
 public:
  ServedPeer(PeerService* service, SessionContext* session, std::shared_ptr<PeerLink> link);
  ~ServedPeer() override;

 private:
  struct Batch;
  struct Item {
    Batch* batch = nullptr;
    const PeerNumberedRequest* request = nullptr;
    PeerAnswer answer;
  };
  // A message of requests, until all of them have been answered.
  struct Batch {
    std::shared_ptr<ServedPeer> peer;
    std::string bytes;
    std::vector<PeerNumberedRequest> requests;  // views of the bytes
    std::vector<Item> items;
    size_t left = 0;
    int64_t came_ns = 0;
    bool for_us = true;    // its target is this compute server's incarnation
    bool crowded = false;  // the service has no room for it
  };

  void OnMessage(PeerLink* link, std::string_view message) override;
  void OnWritable(PeerLink* link) override;
  void OnBroken(PeerLink* link, const absl::Status& why) override;

  absl::Status Take(std::string_view message);
  // Runs `job` in a coroutine of the session, which keeps this.
  bool Post(void (ServedPeer::*job)());

  // --- Coroutines of the session.
  static void Begin(Batch* batch);
  static void Run(Item* item);
  void Execute(Item* item);
  // Its answer is ready. One of those who find nobody at it sends what is.
  void Finish(Item* item);
  void Answer();
  // As many messages as the link takes.
  void SendReady();
  // Nobody takes them any more.
  void DropReady();
  // The first ones are over.
  void ForgetReady(size_t count);
  void OnRoom();
  void OnGone();

  PeerService& service_;
  SessionContext& session_;
  const std::shared_ptr<PeerLink> link_;
  const PeerIdentity other_;
  std::atomic<bool> gone_{false};
  std::atomic<bool> waits_for_room_{false};
  std::atomic<size_t> under_way_{0};  // requests that were taken, and their answers not sent

  // --- The session's.
  size_t running_ = 0;       // begun, and not ready
  std::deque<Item*> ready_;  // in the order in which they were
  bool answering_ = false;   // a coroutine is at it
  bool full_ = false;        // the link takes nothing until OnRoom()
  int64_t answered_ns_ = INT64_MIN / 2;
  size_t answered_ = 0;  // requests, by the last message: at once others are on their way
  MessageThrift thrift_;
  Parking hold_;
  PeerMessageWriter writer_;
};

}  // namespace pando
