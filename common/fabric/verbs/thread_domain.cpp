#include "common/fabric/verbs/thread_domain.h"

namespace pando {
namespace {

class RealCalls final : public ThreadDomainCalls {
 public:
  ibv_td* Allocate(const VerbsDevice& device) override {
    ibv_td_init_attr attributes = {};
    return ibv_alloc_td(device.context(), &attributes);
  }
  void Free(ibv_td* domain) override { ibv_dealloc_td(domain); }
  ibv_pd* AllocateParent(const VerbsDevice& device, ibv_td* domain) override {
    ibv_parent_domain_init_attr attributes = {};
    attributes.pd = device.pd();
    attributes.td = domain;
    return ibv_alloc_parent_domain(device.context(), &attributes);
  }
  void FreeParent(ibv_pd* parent) override { ibv_dealloc_pd(parent); }
};

}  // namespace

ThreadDomainCalls* RealThreadDomainCalls() {
  static RealCalls calls;
  return &calls;
}

ThreadDomain ThreadDomain::Create(const VerbsDevice& device, ThreadDomainCalls* calls) {
  ThreadDomain made;
  made.calls_ = calls;
  made.domain_ = calls->Allocate(device);
  if (made.domain_ != nullptr) made.parent_ = calls->AllocateParent(device, made.domain_);
  return made;
}

ThreadDomain& ThreadDomain::operator=(ThreadDomain&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(domain_, other.domain_);
  std::swap(parent_, other.parent_);
  return *this;
}

ThreadDomain::~ThreadDomain() {
  if (parent_ != nullptr) calls_->FreeParent(parent_);
  if (domain_ != nullptr) calls_->Free(domain_);
}

}  // namespace pando
