#include "bench/sim/second_life.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "bench/sim/scenario_stage.h"
#include "common/base/check.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando {
namespace {

constexpr ServerId kReborn = 2;
constexpr uint32_t kSecondLifeKeys = 400;  // some ten leaves: they lie on both servers

class SecondLife : public Stage {
 public:
  explicit SecondLife(uint64_t seed)
      : Stage({.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole},
               .memory_servers = 2,
               .main_bytes = 8 << 20,
               .chunk_bytes = 64 << 10}) {}

  // `dropped_before`: the tree is dropped before the server's death, so that its next life has not
  // heard of that.
  SimRunResult Run(bool dropped_before) {
    OneClient a = Join(), b = Join();
    Fill(b);
    absl::Status written = absl::UnknownError("it has not ended");
    bool has_read = false, go_on = false;
    a.session->Spawn([&] { written = WriteBack(a, &has_read, &go_on); });
    ImplOf(*a.session).scheduler().endpoint().Wake();
    while (!has_read) PANDO_CHECK(world().Step());

    if (dropped_before) Expect(b.client->DropTree("t"), "drop");
    cluster_.StartAgain(kReborn);
    RunFor(kSecondNs);
    contents().clear();
    Expect(ImplOf(*b.client).AddMember({.id = kReborn}), "B takes the server up");
    if (!dropped_before) Expect(b.client->DropTree("t"), "drop");
    b.tree.reset();
    b.tree = *b.client->CreateTree("t", {});
    Fill(b);

    Expect(ImplOf(*a.client).AddMember({.id = kReborn}), "A takes the server up");
    absl::Status lost;
    a.session->Spawn([&] {
      lost = a.session->Get(*a.tree, "k10000").status();
      go_on = true;
    });
    a.session->Run();
    if (lost.ok()) Problem("a tree that has lost nodes can be read");
    if (absl::IsNotFound(lost)) Problem("a tree that has lost nodes says that a key is absent");
    if (!absl::IsUnavailable(written)) {
      Problem(absl::StrCat("the WRITE of what was lost: ", written.ToString()));
    }
    return Conclude({});
  }

 private:
  void Fill(const OneClient& client) {
    for (uint32_t i = 0; i < kSecondLifeKeys; ++i) Put(client, absl::StrCat("k", 10'000 + i));
  }

  // One that was interrupted between its READ and its WRITE.
  absl::Status WriteBack(const OneClient& client, bool* has_read, const bool* go_on) {
    constexpr int64_t kLookNs = 10 * kMicrosecondNs;
    TreeContext& tree = ImplOf(*client.tree).context();
    const uint32_t bytes = tree.layout.node_bytes();
    SessionContext& session = ImplOf(*client.session).context();
    OperationContext operation(&session, session.NowNs() + 10 * kSecondNs);
    operation.fate = &tree.fate;
    PANDO_ASSIGN_OR_RETURN(const BufferLease image, session.buffers().Lease(bytes));
    // The first node of the first chunk: the first one that anybody was granted there.
    const uint64_t at = cluster_.server(kReborn - 1).superblock().chunk_offset;
    {
      Chain read(kReborn);
      read.Read(MemorySpace::kMain, at, image.Slice(0, bytes));
      PANDO_RETURN_IF_ERROR(operation.Await(&read));
    }
    *has_read = true;
    while (!*go_on) session.scheduler().SleepUntil(session.NowNs() + kLookNs);
    Chain write(kReborn);
    write.Write(MemorySpace::kMain, at, image.Slice(0, bytes));
    return operation.Await(&write);
  }
};

}  // namespace

SimRunResult RunSecondLife(uint64_t seed) {
  return SecondLife(seed).Run(/*dropped_before=*/seed % 2 == 0);
}

}  // namespace pando
