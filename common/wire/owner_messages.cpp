#include "common/wire/owner_messages.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/body_parser.h"
#include "common/wire/byte_codec.h"
#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"

namespace pando {
namespace {

using wire::ByteReader;
using wire::ByteWriter;
using wire::DoneOr;
using wire::Malformed;

bool IsExtent(uint64_t offset, uint64_t bytes) {
  return offset != 0 && offset <= RemoteAddress::kOffsetMask && offset % kLineBytes == 0 &&
         bytes != 0 && bytes <= RemoteAddress::kOffsetMask - offset && bytes % kLineBytes == 0;
}

// Fields in their order on the wire: Encode and Parse of a body go by one list.
constexpr auto kExtentGrant = [](auto& grant) {
  return std::tie(grant.life, grant.id, grant.offset, grant.bytes, grant.ask_again_ns);
};
constexpr auto kExtentFree = [](auto& freed) {
  return std::tie(freed.life, freed.id, freed.incarnation);
};
constexpr auto kExtentQuery = [](auto& query) { return std::tie(query.after_offset, query.max); };
constexpr auto kListedExtent = [](auto& extent) {
  return std::tie(extent.id, extent.offset, extent.bytes, extent.compute_server, extent.incarnation,
                  extent.holder);
};
constexpr auto kFenceReply = [](auto& reply) {
  return std::tie(reply.confirmed, reply.ask_again_ns);
};
constexpr auto kPendingDeletes = [](auto& deletes) {
  return std::tie(deletes.tombstones, deletes.oldest_ms);
};

bool IsAskAgain(int64_t ns) { return ns > 0 && ns <= kAskAgainNsMax; }

bool TakeExtent(ByteReader* reader, ListedExtent* extent) {
  return reader->TakeFields(kListedExtent(*extent)) && extent->holder <= ClientLiveness::kDead &&
         extent->id != 0 && IsExtent(extent->offset, extent->bytes) &&
         extent->compute_server != 0 && extent->incarnation != 0;
}

}  // namespace

std::string EncodeExtentRequest(const ExtentRequest& request) {
  return ByteWriter().Put(request.bytes).Take();
}
absl::StatusOr<ExtentRequest> ParseExtentRequest(std::string_view body) {
  ByteReader reader(body);
  ExtentRequest request;
  reader.Take(&request.bytes);
  if (reader.Done() && (request.bytes == 0 || request.bytes > kExtentBytesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an extent has 1 to ", kExtentBytesMax, " bytes, not ", request.bytes));
  }
  return DoneOr(reader, request, "request for an extent");
}

std::string EncodeExtentGrant(const ExtentGrant& grant) {
  return ByteWriter().PutFields(kExtentGrant(grant)).Take();
}
absl::StatusOr<ExtentGrant> ParseExtentGrant(std::string_view body) {
  ByteReader reader(body);
  ExtentGrant grant;
  reader.TakeFields(kExtentGrant(grant));
  const bool given =
      grant.id != 0 && IsExtent(grant.offset, grant.bytes) && grant.ask_again_ns == 0;
  const bool later =
      grant.id == 0 && grant.offset == 0 && grant.bytes == 0 && IsAskAgain(grant.ask_again_ns);
  if (grant.life == 0 || (!given && !later)) return Malformed("grant of an extent");
  return DoneOr(reader, grant, "grant of an extent");
}

std::string EncodeExtentFree(const ExtentFree& freed) {
  return ByteWriter().PutFields(kExtentFree(freed)).Take();
}
absl::StatusOr<ExtentFree> ParseExtentFree(std::string_view body) {
  ByteReader reader(body);
  ExtentFree freed;
  reader.TakeFields(kExtentFree(freed));
  if (freed.life == 0 || freed.id == 0 || freed.incarnation == 0) {
    return Malformed("extent to free");
  }
  return DoneOr(reader, freed, "extent to free");
}

std::string EncodeExtentFreed(bool took_effect) {
  return ByteWriter().Put(static_cast<uint8_t>(took_effect ? 1 : 0)).Take();
}
absl::StatusOr<bool> ParseExtentFreed(std::string_view body) {
  ByteReader reader(body);
  uint8_t took_effect = 0;
  if (!reader.Take(&took_effect) || took_effect > 1) return Malformed("reply to a free");
  return DoneOr(reader, took_effect == 1, "reply to a free");
}

std::string EncodeExtentQuery(const ExtentQuery& query) {
  return ByteWriter().PutFields(kExtentQuery(query)).Take();
}
absl::StatusOr<ExtentQuery> ParseExtentQuery(std::string_view body) {
  ByteReader reader(body);
  ExtentQuery query;
  reader.TakeFields(kExtentQuery(query));
  return DoneOr(reader, query, "query for extents");
}

std::string EncodeExtentList(const ExtentList& list) {
  ByteWriter writer;
  writer.Put(list.life).Put(list.more).Put(static_cast<uint32_t>(list.extents.size()));
  for (const ListedExtent& extent : list.extents) writer.PutFields(kListedExtent(extent));
  return writer.Take();
}
absl::StatusOr<ExtentList> ParseExtentList(std::string_view body) {
  ByteReader reader(body);
  ExtentList list;
  uint32_t count = 0;
  reader.Take(&list.life);
  reader.Take(&list.more);
  if (!reader.Take(&count) || count > kListedExtentsMax || list.life == 0 || list.more > 1) {
    return Malformed("list of extents");
  }
  uint64_t end = 0;  // of the one before: who asks for what comes after it gets on
  for (uint32_t i = 0; i < count; ++i) {
    ListedExtent& extent = list.extents.emplace_back();
    if (!TakeExtent(&reader, &extent) || extent.offset < end) return Malformed("list of extents");
    end = extent.offset + extent.bytes;
  }
  if (list.more == 1 && list.extents.empty()) return Malformed("list of extents: no end");
  return DoneOr(reader, std::move(list), "list of extents");
}

std::string EncodeFenceReply(const FenceReply& reply) {
  return ByteWriter().PutFields(kFenceReply(reply)).Take();
}
absl::StatusOr<FenceReply> ParseFenceReply(std::string_view body) {
  ByteReader reader(body);
  FenceReply reply;
  reader.TakeFields(kFenceReply(reply));
  if (reply.confirmed > 1 ||
      (reply.confirmed == 1 ? reply.ask_again_ns != 0 : !IsAskAgain(reply.ask_again_ns))) {
    return Malformed("reply to a fence");
  }
  return DoneOr(reader, reply, "reply to a fence");
}

std::string EncodePendingDeletes(const PendingDeletes& deletes) {
  return ByteWriter().PutFields(kPendingDeletes(deletes)).Take();
}
absl::StatusOr<PendingDeletes> ParsePendingDeletes(std::string_view body) {
  ByteReader reader(body);
  PendingDeletes deletes;
  reader.TakeFields(kPendingDeletes(deletes));
  if (deletes.oldest_ms > kPendingDeleteMsMax) return Malformed("note of pending deletes");
  return DoneOr(reader, deletes, "note of pending deletes");
}

std::string EncodeServingLease(uint64_t lease_us) { return ByteWriter().Put(lease_us).Take(); }
absl::StatusOr<uint64_t> ParseServingLease(std::string_view body) {
  ByteReader reader(body);
  uint64_t lease_us = 0;
  reader.Take(&lease_us);
  if (lease_us > kLeaseUsMax) return Malformed("serving lease: more than a day");
  return DoneOr(reader, lease_us, "serving lease");
}

}  // namespace pando
