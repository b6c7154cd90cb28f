// Objects of libibverbs that free themselves, in the order that the library asks for: members
// declared later are destroyed first. Not thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace pando {

struct VerbsDeleter {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  void operator()(ibv_mr* region) const { ibv_dereg_mr(region); }
  void operator()(ibv_cq* queue) const { ibv_destroy_cq(queue); }
  void operator()(ibv_qp* pair) const { ibv_destroy_qp(pair); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
  void operator()(ibv_srq* receives) const { ibv_destroy_srq(receives); }
};

using ContextHandle = std::unique_ptr<ibv_context, VerbsDeleter>;
using ProtectionDomainHandle = std::unique_ptr<ibv_pd, VerbsDeleter>;
using MemoryRegionHandle = std::unique_ptr<ibv_mr, VerbsDeleter>;
using CompletionQueueHandle = std::unique_ptr<ibv_cq, VerbsDeleter>;
using QueuePairHandle = std::unique_ptr<ibv_qp, VerbsDeleter>;
using CompletionChannelHandle = std::unique_ptr<ibv_comp_channel, VerbsDeleter>;
using SharedReceivesHandle = std::unique_ptr<ibv_srq, VerbsDeleter>;

}  // namespace pando
