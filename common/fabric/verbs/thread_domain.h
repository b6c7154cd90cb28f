// A thread domain: what the provider may take for granted of the queue pairs made in it is that one
// thread posts to them, so that posting needs no lock, and no doorbell register is shared with
// others. A session has one where the provider knows them; others work without.
//
// Not thread-safe. The queue pairs of a domain go before it; memory is the device's.
#pragma once

#include <utility>

#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_handles.h"

namespace pando {

// The calls of libibverbs: a seam, as no software device knows thread domains.
class ThreadDomainCalls {
 public:
  virtual ~ThreadDomainCalls() = default;
  // ibv_alloc_td(), ibv_dealloc_td(): nullptr where the provider has none (left).
  virtual ibv_td* Allocate(const VerbsDevice& device) = 0;
  virtual void Free(ibv_td* domain) = 0;
  // ibv_alloc_parent_domain(), ibv_dealloc_pd(): the device's protection domain, seen from there.
  virtual ibv_pd* AllocateParent(const VerbsDevice& device, ibv_td* domain) = 0;
  virtual void FreeParent(ibv_pd* parent) = 0;
};

// The library's own.
ThreadDomainCalls* RealThreadDomainCalls();

class ThreadDomain {
 public:
  ThreadDomain() = default;
  ThreadDomain(ThreadDomain&& other) noexcept { *this = std::move(other); }
  ThreadDomain& operator=(ThreadDomain&& other) noexcept;
  ~ThreadDomain();

  // Where the provider refuses: none, and pd() is nullptr.
  static ThreadDomain Create(const VerbsDevice& device, ThreadDomainCalls* calls);

  // For the queue pairs of this thread (QueuePairLimits::domain).
  ibv_pd* pd() const { return parent_; }

 private:
  ThreadDomainCalls* calls_ = nullptr;
  ibv_td* domain_ = nullptr;
  ibv_pd* parent_ = nullptr;
};

}  // namespace pando
