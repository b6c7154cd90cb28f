#include "common/fabric/verbs/verbs_device.h"

#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/units.h"

namespace pando {
namespace {

constexpr uint32_t kRxeVendor = 0xffffff;
constexpr uint32_t kSiwVendor = 0x626d74;
// More READs and atomics under way on one queue pair than any NIC has.
constexpr int kDepthMax = 32;

struct DeviceList {
  DeviceList() : devices(ibv_get_device_list(&count)) {}
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  int count = 0;
  ibv_device** devices;
};

uint32_t MtuBytes(ibv_mtu mtu) { return 128u << mtu; }

// `interface`, if given, becomes the name of the network interface that the GIDs belong to.
std::vector<GidFacts> QueryGids(ibv_context* context, int port, int table_size,
                                std::string* interface = nullptr) {
  std::vector<GidFacts> gids;
  for (int index = 0; index < table_size; ++index) {
    ibv_gid_entry entry = {};
    if (ibv_query_gid_ex(context, static_cast<uint32_t>(port), static_cast<uint32_t>(index), &entry,
                         0) != 0) {
      continue;  // an empty slot
    }
    GidFacts gid;
    gid.index = index;
    gid.type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? GidType::kRoceV2
               : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::kRoceV1
                                                        : GidType::kInfiniBand;
    std::memcpy(gid.gid.data(), entry.gid.raw, gid.gid.size());
    gids.push_back(gid);
    char name[IF_NAMESIZE] = {};
    if (interface != nullptr && interface->empty() && entry.ndev_ifindex != 0 &&
        if_indextoname(entry.ndev_ifindex, name) != nullptr) {
      *interface = name;
    }
  }
  return gids;
}

// rxe of kernels before 5.11 has no vendor.
bool IsSoftware(const std::string& name, uint32_t vendor) {
  return vendor == kRxeVendor || vendor == kSiwVendor || vendor == 0 || name.starts_with("rxe") ||
         name.starts_with("siw");
}

DeviceFacts QueryFacts(ibv_device* device, ibv_context* context) {
  DeviceFacts facts;
  facts.name = ibv_get_device_name(device);
  ibv_device_attr_ex extended = {};
  facts.may_open = context != nullptr && ibv_query_device_ex(context, nullptr, &extended) == 0;
  if (!facts.may_open) return facts;
  const ibv_device_attr& attributes = extended.orig_attr;
  facts.is_software = IsSoftware(facts.name, attributes.vendor_id);
  facts.has_atomics = attributes.atomic_cap != IBV_ATOMIC_NONE;
  facts.on_chip_bytes = extended.max_dm_size;
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr attributes_of_port = {};
    if (ibv_query_port(context, static_cast<uint8_t>(number), &attributes_of_port) != 0) continue;
    PortFacts port;
    port.number = number;
    port.state = ibv_port_state_str(attributes_of_port.state);
    port.active = attributes_of_port.state == IBV_PORT_ACTIVE;
    port.ethernet = attributes_of_port.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.mtu_bytes = MtuBytes(attributes_of_port.active_mtu);
    port.needs_grh = (attributes_of_port.flags & IBV_QPF_GRH_REQUIRED) != 0;
    port.partitions = attributes_of_port.pkey_tbl_len;
    port.gids = QueryGids(context, number, attributes_of_port.gid_tbl_len, &port.interface);
    facts.ports.push_back(std::move(port));
  }
  return facts;
}

uint8_t Depth(int device_max) { return static_cast<uint8_t>(std::clamp(device_max, 1, kDepthMax)); }

}  // namespace

ibv_mtu MtuFromBytes(uint32_t bytes) {
  return static_cast<ibv_mtu>(std::countr_zero(std::bit_floor(std::clamp(bytes, 256u, 4096u))) - 7);
}

std::vector<DeviceFacts> ListVerbsDevices() {
  const DeviceList list;
  std::vector<DeviceFacts> devices;
  for (int i = 0; i < list.count; ++i) {
    const ContextHandle context(ibv_open_device(list.devices[i]));
    devices.push_back(QueryFacts(list.devices[i], context.get()));
  }
  return devices;
}

absl::StatusOr<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(const VerbsDeviceOptions& options) {
  const DeviceList list;
  std::vector<DeviceFacts> facts;
  std::vector<ContextHandle> contexts;
  int open_error = 0;
  for (int i = 0; i < list.count; ++i) {
    contexts.emplace_back(ibv_open_device(list.devices[i]));
    if (contexts.back() == nullptr) open_error = errno;
    facts.push_back(QueryFacts(list.devices[i], contexts.back().get()));
  }
  std::shared_ptr<VerbsDevice> device(new VerbsDevice);
  absl::StatusOr<DeviceChoice> choice = ChooseDevice(facts, options);
  if (!choice.ok() && (open_error == EACCES || open_error == EPERM)) {
    return absl::PermissionDeniedError(
        absl::StrCat(std::string(choice.status().message()),
                     "; a device there may not be opened by this user: see the permissions of "
                     "/dev/infiniband/uverbs*"));
  }
  PANDO_RETURN_IF_ERROR(choice.status());
  device->path_ = *std::move(choice);
  device->name_ = facts[device->path_.device].name;
  device->context_ = std::move(contexts[device->path_.device]);
  ibv_device_attr_ex attributes = {};
  if (device->context_ == nullptr ||
      ibv_query_device_ex(device->context_.get(), nullptr, &attributes) != 0) {
    return absl::UnavailableError(absl::StrCat("RDMA device ", device->name_,
                                               " cannot be opened or asked: ", std::strerror(errno),
                                               ": may this user open /dev/infiniband/uverbs*?"));
  }
  device->pd_.reset(ibv_alloc_pd(device->context_.get()));
  if (device->pd_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "RDMA device ", device->name_, ": no protection domain: ", std::strerror(errno)));
  }
  const ibv_device_attr& basic = attributes.orig_attr;
  device->is_software_ = IsSoftware(device->name_, basic.vendor_id);
  device->device_memory_bytes_ = attributes.max_dm_size;
  device->initiator_depth_ = Depth(basic.max_qp_init_rd_atom);
  device->responder_depth_ = Depth(basic.max_qp_rd_atom);
  device->work_requests_max_ = static_cast<uint32_t>(std::max(basic.max_qp_wr, 1));
  device->completions_max_ = static_cast<uint32_t>(std::max(basic.max_cqe, 1));
  return device;
}

int VerbsDevice::GidIndex() const {
  const auto port = static_cast<uint32_t>(path_.port.number);
  ibv_gid_entry entry = {};
  const auto is_ours = [&](int index) {
    return ibv_query_gid_ex(context(), port, static_cast<uint32_t>(index), &entry, 0) == 0 &&
           std::memcmp(entry.gid.raw, path_.gid.gid.data(), path_.gid.gid.size()) == 0;
  };
  if (is_ours(path_.gid.index)) return path_.gid.index;
  ibv_port_attr attributes = {};
  if (ibv_query_port(context(), static_cast<uint8_t>(port), &attributes) != 0) {
    return path_.gid.index;
  }
  for (const GidFacts& gid : QueryGids(context(), path_.port.number, attributes.gid_tbl_len)) {
    if (gid.type == path_.gid.type && gid.gid == path_.gid.gid) return gid.index;
  }
  return path_.gid.index;
}

absl::StatusOr<MemoryRegionHandle> VerbsDevice::Register(void* memory, uint64_t bytes,
                                                         bool remote) const {
  const unsigned access = remote ? kRemoteAccess : unsigned{IBV_ACCESS_LOCAL_WRITE};
  MemoryRegionHandle region(ibv_reg_mr(pd(), memory, bytes, access));
  if (region != nullptr) return region;
  const int error = errno;
  return absl::ResourceExhaustedError(absl::StrCat(
      "RDMA device ", name_, " cannot register ", FormatBytes(bytes), ": ", std::strerror(error),
      error == ENOMEM ? ": is the limit of locked memory (ulimit -l) high enough?" : ""));
}

}  // namespace pando
