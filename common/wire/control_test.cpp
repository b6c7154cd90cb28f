#include "common/wire/control.h"

#include <gtest/gtest.h>

#include "common/wire/node_layout.h"
#include "common/wire/test_messages.h"

namespace pando {
namespace {

ControlHeader Request() {
  ControlHeader header;
  header.opcode = static_cast<uint16_t>(ControlOpcode::kAllocateNodes);
  header.sender = 5;
  header.incarnation = 6;
  header.session = 7;
  header.sequence = 8;
  header.deadline_ns = 9;
  return header;
}

constexpr auto kLoss = absl::StatusCode::kDataLoss;

TEST(ControlMessageTest, RoundTrips) {
  for (const std::string& body :
       {std::string(), std::string("body"), std::string(kControlBodyBytesMax, 'b')}) {
    const std::string bytes = EncodeMessage(Request(), body);
    const auto message = ParseMessage(bytes);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->body, body);
    EXPECT_EQ(message->header.opcode, 20);
    EXPECT_EQ(message->header.sender, 5);
    EXPECT_EQ(message->header.incarnation, 6u);
    EXPECT_EQ(message->header.session, 7u);
    EXPECT_EQ(message->header.sequence, 8u);
    EXPECT_EQ(message->header.deadline_ns, 9);
  }
}

TEST(ControlMessageTest, EveryTruncationAndEveryFlippedBitIsAStatus) {
  const std::string bytes = EncodeMessage(Request(), "some body");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseMessage(bytes.substr(0, size)).status().code(), kLoss) << size;
  }
  EXPECT_EQ(ParseMessage(bytes + '\0').status().code(), kLoss);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(ParseMessage(damaged).ok()) << bit;
  }
}

TEST(ControlMessageTest, OtherVersionsAreNamed) {
  std::string bytes = EncodeMessage(Request(), "");
  bytes[4] = 99;
  for (const size_t size :
       {bytes.size(), size_t{6}}) {  // whatever their headers look like behind it
    const absl::Status status = ParseMessage(std::string_view(bytes).substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("version 99"), std::string::npos) << status;
    EXPECT_NE(std::string(status.message()).find("this program " + std::to_string(kControlVersion)),
              std::string::npos)
        << status;
  }
}

TEST(ControlReplyTest, CarriesBodyOrStatus) {
  const std::string reply = EncodeReply(Request(), 3, "grant");
  const auto body = ParseReply(reply, ControlOpcode::kAllocateNodes, 8);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(*body, "grant");
  const ControlHeader header = ParseMessage(reply)->header;
  EXPECT_EQ(header.sender, 3);
  EXPECT_EQ(header.target_incarnation, 6u);

  const std::string error =
      EncodeErrorReply(Request(), 3, absl::ResourceExhaustedError("no chunk is free"));
  const absl::Status status = ParseReply(error, ControlOpcode::kAllocateNodes, 8).status();
  EXPECT_EQ(status, absl::ResourceExhaustedError("no chunk is free"));
}

TEST(ControlReplyTest, RefusesWhatDoesNotAnswer) {
  const std::string reply = EncodeReply(Request(), 3, "grant");
  EXPECT_EQ(ParseReply(reply, ControlOpcode::kAllocateNodes, 9).status().code(), kLoss);
  EXPECT_EQ(ParseReply(reply, ControlOpcode::kJoin, 8).status().code(), kLoss);
  EXPECT_EQ(
      ParseReply(EncodeMessage(Request(), ""), ControlOpcode::kAllocateNodes, 8).status().code(),
      kLoss);
  EXPECT_EQ(ParseReply("", ControlOpcode::kAllocateNodes, 8).status().code(), kLoss);
  ControlHeader header = Request();
  header.flags = 1;
  header.status = 99;
  EXPECT_EQ(ParseReply(EncodeMessage(header, ""), ControlOpcode::kAllocateNodes, 8).status().code(),
            kLoss);
}

TEST(ControlReplyTest, TooLargeBodiesBecomeErrors) {
  const std::string reply = EncodeReply(Request(), 3, std::string(kControlBodyBytesMax + 1, 'x'));
  EXPECT_EQ(ParseReply(reply, ControlOpcode::kAllocateNodes, 8).status().code(),
            absl::StatusCode::kResourceExhausted);
  const std::string error = EncodeErrorReply(
      Request(), 3, absl::InternalError(std::string(kControlBodyBytesMax + 1, 'x')));
  EXPECT_EQ(ParseReply(error, ControlOpcode::kAllocateNodes, 8).status().code(),
            absl::StatusCode::kInternal);
}

Superblock ValidSuperblock() {
  Superblock s;
  s.region_bytes = 64 << 20;
  s.root_offset = 4096;
  s.dead_offset = 1 << 19;
  s.chunk_offset = 1 << 20;
  s.chunk_bytes = 1 << 20;
  s.chunk_count = 63;
  s.lock_words = 32'768;
  s.packet_bytes = 4096;
  SealSuperblock(&s);
  return s;
}

CatalogEntry Entry(std::string name = "words") {
  CatalogEntry entry;
  entry.name = std::move(name);
  entry.tree_id = 3;
  entry.shape = {60, 8, 4352, 4096};
  entry.root_record = RemoteAddress(1, 4096 + 64);
  entry.root_lock_index = 1;
  entry.features.incompatible = kIncompatibleLineCrc;
  entry.created = 1;
  return entry;
}

TEST(ControlBodyTest, EveryBodyHasItsLength) {
  ExpectExactLength(EncodeServerInfo({ValidSuperblock(), 1, 2, 3, 4, 5, 6}), ParseServerInfo);
  ExpectExactLength(EncodeJoinRequest({77}), ParseJoinRequest);
  ExpectExactLength(EncodeJoinReply({1, 2}), ParseJoinReply);
  ExpectExactLength(EncodeClientState(ClientLiveness::kLeft), ParseClientState);
  ExpectExactLength(EncodeCreateTree({"words", {8, 8, 0, 0}}), ParseCreateTree);
  ExpectExactLength(EncodeCatalogEntry(Entry()), ParseCatalogEntry);
  ExpectExactLength(EncodeCatalogList({Entry(), Entry("other")}), ParseCatalogList);
  ExpectExactLength(EncodeTreeName("words"), ParseTreeName);
  ExpectExactLength(EncodeTreeId(4), ParseTreeId);
  ExpectExactLength(EncodeTreeAttach({4, 5}), ParseTreeAttach);
  ExpectExactLength(EncodeTreeGrowth({4, {5, 6}}), ParseTreeGrowth);
  ExpectExactLength(EncodeTreeServers({{5, 6}, {7, 8}}), ParseTreeServers);
  ExpectExactLength(EncodeCounters({{"reads", 1}, {"", 2}}), ParseCounters);
}

TEST(ControlBodyTest, FieldsRoundTrip) {
  const auto info = ParseServerInfo(EncodeServerInfo({ValidSuperblock(), 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(info->lease_us, 4u);
  EXPECT_EQ(info->serving_lease_us, 7u);
  EXPECT_EQ(info->superblock.chunk_count, 63u);
  EXPECT_EQ(info->is_catalog, 1);
  EXPECT_EQ(info->free_bytes, 2u);
  EXPECT_EQ(info->used_bytes, 3u);
  EXPECT_EQ(ParseJoinRequest(EncodeJoinRequest({77}))->process_id, 77u);
  EXPECT_EQ(ParseJoinReply(EncodeJoinReply({9, 8}))->compute_server, 9);
  EXPECT_EQ(ParseJoinReply(EncodeJoinReply({9, 8}))->incarnation, 8u);
  EXPECT_EQ(ParseJoinReply(EncodeJoinReply({9, 8, {1, 2, 3}}))->proof[2], 3);

  for (const ClientLiveness state : {ClientLiveness::kUnknown, ClientLiveness::kJoined,
                                     ClientLiveness::kLeft, ClientLiveness::kDead}) {
    EXPECT_EQ(*ParseClientState(EncodeClientState(state)), state);
  }

  const auto create =
      ParseCreateTree(EncodeCreateTree({std::string("n\0m", 3), {1, 2, 3, 4}, TreeMode::kOwned}));
  EXPECT_EQ(create->mode, TreeMode::kOwned);
  EXPECT_FALSE(create->windows);
  const auto narrow =
      ParseCreateTree(EncodeCreateTree({"n", {1, 2, 3, 4}, TreeMode::kOwned, true}));
  EXPECT_EQ(narrow->mode, TreeMode::kOwned);
  EXPECT_TRUE(narrow->windows);
  EXPECT_EQ(ParseCreateTree(EncodeCreateTree({"n", {1, 2, 3, 4}}))->mode, TreeMode::kShared);
  EXPECT_EQ(create->delete_persistence_ms, 0u);
  const auto in_time =
      ParseCreateTree(EncodeCreateTree({"n", {1, 2, 3, 4}, TreeMode::kOwned, false, 77}));
  EXPECT_EQ(in_time->delete_persistence_ms, 77u);
  EXPECT_FALSE(in_time->windows);
  EXPECT_EQ(create->name, std::string("n\0m", 3));
  EXPECT_EQ(create->shape.key_bytes_max, 1u);
  EXPECT_EQ(create->shape.value_bytes_max, 2u);
  EXPECT_EQ(create->shape.node_bytes, 3u);
  EXPECT_EQ(create->shape.packet_bytes, 4u);

  const auto entry = ParseCatalogEntry(EncodeCatalogEntry(Entry()));
  EXPECT_EQ(entry->name, "words");
  EXPECT_EQ(entry->tree_id, 3u);
  EXPECT_EQ(entry->shape.node_bytes, 4352u);
  EXPECT_EQ(entry->root_record, RemoteAddress(1, 4160));
  EXPECT_EQ(entry->root_lock_index, 1u);
  EXPECT_EQ(entry->version, 1u);
  EXPECT_EQ(entry->features.incompatible, kIncompatibleLineCrc);
  EXPECT_EQ(entry->created, 1);
  EXPECT_EQ(entry->mode(), TreeMode::kShared);
  CatalogEntry owned = Entry();
  owned.features.incompatible |= kIncompatibleOwned;
  owned.delete_persistence_ms = 1'500;
  EXPECT_EQ(ParseCatalogEntry(EncodeCatalogEntry(owned))->delete_persistence_ms, 1'500u);
  EXPECT_EQ(ParseCatalogEntry(EncodeCatalogEntry(owned))->mode(), TreeMode::kOwned);

  const auto list = ParseCatalogList(EncodeCatalogList({Entry("a"), Entry("b")}));
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[1].name, "b");
  EXPECT_EQ(*ParseTreeName(EncodeTreeName("words")), "words");
  EXPECT_EQ(*ParseTreeId(EncodeTreeId(4)), 4u);
  EXPECT_EQ(ParseTreeAttach(EncodeTreeAttach({4, 5}))->tree_id, 4u);
  EXPECT_EQ(ParseTreeAttach(EncodeTreeAttach({4, 5}))->life, 5u);
  EXPECT_EQ(ParseTreeGrowth(EncodeTreeGrowth({4, {5, 6}}))->on, (TreeServer{5, 6}));
  EXPECT_EQ(*ParseTreeServers(EncodeTreeServers({{5, 6}, {7, 8}})),
            (TreeServerList{{5, 6}, {7, 8}}));
  EXPECT_EQ(*ParseCounters(EncodeCounters({{"reads", 1}, {"writes", 2}})),
            (CounterList{{"reads", 1}, {"writes", 2}}));
}

TEST(ControlBodyTest, ValuesOutOfRangeAreRefused) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(ParseTreeName(EncodeTreeName("")).status().code(), kInvalid);
  EXPECT_EQ(ParseTreeName(EncodeTreeName(std::string(121, 'n'))).status().code(), kInvalid);
  EXPECT_TRUE(ParseTreeName(EncodeTreeName(std::string(120, 'n'))).ok());
  EXPECT_EQ(ParseCreateTree(EncodeCreateTree({"", {8, 8, 0, 0}})).status().code(), kInvalid);
  EXPECT_EQ(ParseClientState("\4").status().code(), kLoss);
  EXPECT_EQ(ParseJoinReply(EncodeJoinReply({0, 2})).status().code(), kLoss);
  EXPECT_EQ(ParseJoinReply(EncodeJoinReply({1, 0})).status().code(), kLoss);
  EXPECT_EQ(ParseServerInfo(EncodeServerInfo({Superblock{}, 0, 0, 0, 0, 1})).status().code(),
            kLoss);
  EXPECT_EQ(ParseServerInfo(EncodeServerInfo({ValidSuperblock(), 1, 2, 3})).status().code(), kLoss)
      << "a server without a life";
  EXPECT_EQ(
      ParseServerInfo(EncodeServerInfo({ValidSuperblock(), 1, 2, 3, 4, 5, 6, kLeaseUsMax + 1}))
          .status()
          .code(),
      kLoss);
  const absl::Status mode =
      ParseCreateTree(EncodeCreateTree({"words", {8, 8, 0, 0}, static_cast<TreeMode>(2)})).status();
  EXPECT_EQ(mode.code(), kInvalid) << mode;
  EXPECT_EQ(ParseTreeGrowth(EncodeTreeGrowth({4, {5, 0}})).status().code(), kLoss);
  EXPECT_EQ(ParseTreeServers(EncodeTreeServers(TreeServerList(kTreeServersMax + 1, {5, 6})))
                .status()
                .code(),
            kLoss);
  EXPECT_EQ(ParseCounters(std::string(4, '\xff')).status().code(), kLoss);  // 4 billion of nothing
  EXPECT_EQ(ParseCatalogList(std::string(4, '\xff')).status().code(), kLoss);
}

TEST(ControlBodyTest, CatalogEntriesAreCheckedAtOpenAndListedAnyway) {
  const auto code = [](auto change) {
    CatalogEntry entry = Entry();
    change(&entry);
    EXPECT_TRUE(ParseCatalogList(EncodeCatalogList({entry})).ok());
    return ParseCatalogEntry(EncodeCatalogEntry(entry)).status().code();
  };
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(code([](CatalogEntry* e) { e->version = 2; }), kRefused);
  EXPECT_EQ(code([](CatalogEntry* e) { e->features.incompatible = 4; }), absl::StatusCode::kOk)
      << "a kind of tree is for the client to know";
  EXPECT_EQ(code([](CatalogEntry* e) { e->features.compatible = 4; }), absl::StatusCode::kOk);
  EXPECT_EQ(code([](CatalogEntry* e) { e->shape.key_bytes_max = 256; }), kLoss);
  EXPECT_EQ(code([](CatalogEntry* e) { e->shape.node_bytes = 0; }), kLoss);
  EXPECT_EQ(code([](CatalogEntry* e) { e->shape.packet_bytes = 64; }), kLoss);
  EXPECT_EQ(code([](CatalogEntry* e) { e->tree_id = 0; }), kLoss);
  EXPECT_EQ(code([](CatalogEntry* e) { e->root_record = {}; }), kLoss);
  EXPECT_EQ(code([](CatalogEntry* e) { e->root_record = RemoteAddress(1, 100); }), kLoss);
  EXPECT_EQ(code([](CatalogEntry* e) { e->root_lock_index = 256; }), kLoss);
}

TEST(ControlBodyTest, AFullCatalogFitsOneMessage) {
  const std::vector<CatalogEntry> entries(kRootRecordsMax,
                                          Entry(std::string(kTreeNameBytesMax, 'n')));
  EXPECT_LE(EncodeCatalogList(entries).size(), kControlBodyBytesMax);
}

}  // namespace
}  // namespace pando
