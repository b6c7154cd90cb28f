#include "pando/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/cursor_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/thrown.h"
#include "compute/client/write_many.h"

namespace pando {
namespace {

// The library's own trees are no user's: what is in them it relies on (rule O2).
absl::Status CheckUserName(std::string_view name) {
  if (!name.starts_with('.')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tree '", std::string(name),
                   "': names that begin with a dot are the library's own; choose another"));
}

}  // namespace

// --- Tree

Tree::Tree(std::shared_ptr<TreeImpl> impl) : impl_(std::move(impl)) {}
Tree::~Tree() = default;
const std::string& Tree::name() const { return impl_->context().entry.name; }
uint32_t Tree::key_bytes_max() const { return impl_->context().layout.key_bytes_max(); }
uint32_t Tree::value_bytes_max() const { return impl_->context().entry.shape.value_bytes_max; }
uint32_t Tree::inline_value_bytes_max() const {
  return InlineBytesOf(impl_->context().entry.shape);
}
uint32_t Tree::node_bytes() const { return impl_->context().layout.node_bytes(); }
TreeOptions::Mode Tree::mode() const { return ModeOf(impl_->context().entry); }
bool Tree::narrow_reads() const { return impl_->context().entry.windows(); }
uint32_t Tree::delete_persistence_ms() const {
  return impl_->context().entry.delete_persistence_ms;
}

// --- Client

Client::Client(std::unique_ptr<ClientImpl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Tree>> Client::CreateTree(std::string_view name,
                                                         const TreeOptions& options) {
  PANDO_RETURN_IF_ERROR(CheckUserName(name));
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<TreeImpl> tree, impl_->CreateTree(name, options));
  return ImplAccess::Make<Tree>(std::move(tree));
}

absl::StatusOr<std::unique_ptr<Tree>> Client::OpenTree(std::string_view name) {
  PANDO_RETURN_IF_ERROR(CheckUserName(name));
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<TreeImpl> tree, impl_->OpenTree(name));
  return ImplAccess::Make<Tree>(std::move(tree));
}

absl::Status Client::DropTree(std::string_view name) {
  PANDO_RETURN_IF_ERROR(CheckUserName(name));
  return impl_->DropTree(name);
}
absl::StatusOr<std::vector<TreeInfo>> Client::ListTrees() {
  PANDO_ASSIGN_OR_RETURN(std::vector<TreeInfo> trees, impl_->ListTrees());
  std::erase_if(trees, [](const TreeInfo& tree) { return !CheckUserName(tree.name).ok(); });
  return trees;
}
absl::Status Client::TreeStatus(const Tree& tree) {
  return impl_->TreeStatus(ImplOf(tree).context());
}
absl::StatusOr<OwnerInfo> Client::OwnerOf(const Tree& tree, std::string_view key) {
  return impl_->OwnerOf(ImplOf(tree), key);
}
absl::StatusOr<std::vector<RangeInfo>> Client::ListRanges(const Tree& tree) {
  return impl_->ListRanges(ImplOf(tree));
}
absl::StatusOr<std::vector<MemberInfo>> Client::ListMembers() { return impl_->ListMembers(); }
absl::Status Client::Leave(int64_t timeout_ms) { return impl_->Leave(timeout_ms); }
std::vector<ServerStatus> Client::Servers() { return impl_->Servers(); }
absl::Status Client::RegisterUpsertFunction(uint32_t number, UpsertCallback function) {
  return impl_->upserts().Register(number, std::move(function));
}

bool Client::fenced() const { return impl_->fenced(); }
ClientStats Client::Stats() const { return impl_->Stats(); }
uint16_t Client::compute_server_id() const { return impl_->compute_server_id(); }

absl::StatusOr<std::unique_ptr<Session>> Client::NewSession() {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<SessionContext> context, impl_->NewSessionContext());
  return ImplAccess::Make<Session>(std::make_unique<SessionImpl>(impl_.get(), std::move(context)));
}

// --- Session

Session::Session(std::unique_ptr<SessionImpl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

absl::StatusOr<std::string> Session::Get(const Tree& tree, std::string_view key,
                                         const OperationOptions& options) {
  std::string value;
  PANDO_RETURN_IF_ERROR(impl_->Get(tree, key, &value, options));
  return value;
}

absl::Status Session::GetTo(const Tree& tree, std::string_view key, std::string* value,
                            const OperationOptions& options) {
  return impl_->Get(tree, key, value, options);
}

absl::Status Session::Put(const Tree& tree, std::string_view key, std::string_view value,
                          const OperationOptions& options) {
  return impl_->Write(tree, {WriteKind::kPut, key, value}, options);
}

absl::Status Session::Insert(const Tree& tree, std::string_view key, std::string_view value,
                             const OperationOptions& options) {
  return impl_->Write(tree, {WriteKind::kInsert, key, value}, options);
}

absl::Status Session::Update(const Tree& tree, std::string_view key, std::string_view value,
                             const OperationOptions& options) {
  return impl_->Write(tree, {WriteKind::kUpdate, key, value}, options);
}

absl::Status Session::Erase(const Tree& tree, std::string_view key,
                            const OperationOptions& options) {
  return impl_->Write(tree, {WriteKind::kErase, key, ""}, options);
}

absl::Status Session::Replace(const Tree& tree, std::string_view key, std::string_view expected,
                              std::string_view desired, const OperationOptions& options,
                              std::string* actual) {
  return impl_->Write(tree, {WriteKind::kReplace, key, desired, expected}, options,
                      SessionImpl::kFromNow, actual);
}

absl::Status Session::EraseIf(const Tree& tree, std::string_view key, std::string_view expected,
                              const OperationOptions& options, std::string* actual) {
  return impl_->Write(tree, {WriteKind::kEraseIf, key, "", expected}, options,
                      SessionImpl::kFromNow, actual);
}

absl::StatusOr<std::string> Session::Upsert(const Tree& tree, std::string_view key,
                                            UpsertFunction function, std::string_view operand,
                                            const OperationOptions& options) {
  std::string value;
  PANDO_RETURN_IF_ERROR(UpsertTo(tree, key, function, operand, &value, options));
  return value;
}

absl::Status Session::UpsertTo(const Tree& tree, std::string_view key, UpsertFunction function,
                               std::string_view operand, std::string* value,
                               const OperationOptions& options) {
  return impl_->Upsert(tree, key, function, operand, options, SessionImpl::kFromNow, value);
}

absl::Status Session::Scan(const Tree& tree, std::string_view from, size_t limit,
                           std::vector<KeyValue>* rows, const OperationOptions& options) {
  return impl_->Scan(tree, {.from = std::string(from), .limit = limit, .operation = options}, rows);
}

absl::Status Session::Scan(const Tree& tree, const CursorOptions& options,
                           std::vector<KeyValue>* rows) {
  return impl_->Scan(tree, options, rows);
}

absl::Status Session::EraseRange(const Tree& tree, std::string_view from,
                                 std::optional<std::string_view> to, RangeErased* result,
                                 const EraseRangeOptions& options) {
  RangeErased own;
  RangeErased& said = result != nullptr ? *result : own;
  said = {.next = std::string(from)};
  CursorOptions bounds{.from = std::string(from)};
  if (to.has_value()) bounds.to.emplace(*to);
  const KeyRange range = RangeOf(bounds, tree.key_bytes_max());
  const auto note = [&](uint64_t erased, const KeyCut& at) {
    said.erased = erased;
    if (at > range.low) said.next = at.FirstAbove();
    said.done = at >= range.high;
    if (options.progress == nullptr) return absl::OkStatus();
    bool goes_on = false;
    const auto thrown = CallContained([&] { goes_on = options.progress(said); });
    if (thrown.has_value()) {
      return absl::CancelledError(
          absl::StrCat("erasing a range: the callback for its progress threw: ", *thrown));
    }
    return goes_on || said.done ? absl::OkStatus() : absl::CancelledError("erasing a range");
  };
  return impl_->Perform(tree, options.operation, [&](OperationContext& operation) {
    said.done = range.low >= range.high;
    return ImplOf(tree).routed().EraseRange(operation, range, note);
  });
}

absl::Status Session::Flush(const Tree& tree, const OperationOptions& options) {
  return impl_->Perform(tree, options, [&](OperationContext& operation) {
    return ImplOf(tree).routed().Flush(operation);
  });
}

std::unique_ptr<Cursor> Session::NewCursor(const Tree& tree, const CursorOptions& options) {
  return std::unique_ptr<Cursor>(
      new Cursor(std::make_unique<CursorImpl>(impl_.get(), tree, options)));
}

std::vector<absl::StatusOr<std::string>> Session::MultiGet(const Tree& tree,
                                                           const std::vector<std::string>& keys,
                                                           const OperationOptions& options) {
  if (absl::Status refusal = CheckTimeout(options.timeout_ms); !refusal.ok()) {
    return std::vector<absl::StatusOr<std::string>>(keys.size(), std::move(refusal));
  }
  const int64_t deadline_ns = impl_->DeadlineNs(options.timeout_ms);
  std::vector<absl::StatusOr<std::string>> results(keys.size());
  impl_->ForEach(
      keys.size(), deadline_ns,
      [&](size_t i) {
        std::string value;
        absl::Status status = impl_->Get(tree, keys[i], &value, options, deadline_ns);
        if (status.ok()) {
          results[i] = std::move(value);
        } else {
          results[i] = std::move(status);
        }
      },
      [&](size_t i, const absl::Status& refusal) { results[i] = refusal; });
  return results;
}

std::vector<WriteResult> Session::WriteMany(const Tree& tree, const std::vector<Write>& writes,
                                            const OperationOptions& options) {
  const int64_t deadline_ns = impl_->DeadlineNs(options.timeout_ms);
  std::vector<WriteResult> results(writes.size());
  const auto write_of = [&](size_t i) -> CallWrite {
    const Write& write = writes[i];
    return {{write.kind, write.key, write.value, write.expected},
            write.function,
            &results[i].status,
            &results[i].value};
  };
  ExecuteCall(*impl_, tree, writes.size(), write_of, options, deadline_ns);
  return results;
}

std::vector<absl::Status> Session::MultiPut(const Tree& tree, const std::vector<KeyValue>& entries,
                                            const OperationOptions& options) {
  const int64_t deadline_ns = impl_->DeadlineNs(options.timeout_ms);
  std::vector<absl::Status> results(entries.size());
  const auto write_of = [&](size_t i) -> CallWrite {
    return {.operation = {WriteKind::kPut, entries[i].key, entries[i].value},
            .result = &results[i]};
  };
  ExecuteCall(*impl_, tree, entries.size(), write_of, options, deadline_ns);
  return results;
}

std::vector<absl::Status> Session::MultiErase(const Tree& tree,
                                              const std::vector<std::string>& keys,
                                              const OperationOptions& options) {
  const int64_t deadline_ns = impl_->DeadlineNs(options.timeout_ms);
  std::vector<absl::Status> results(keys.size());
  const auto write_of = [&](size_t i) -> CallWrite {
    return {.operation = {WriteKind::kErase, keys[i], ""}, .result = &results[i]};
  };
  ExecuteCall(*impl_, tree, keys.size(), write_of, options, deadline_ns);
  return results;
}

absl::Status Session::Sweep(const Tree& tree, SweepResult* result,
                            const OperationOptions& options) {
  return impl_->Sweep(tree, result, options);
}

absl::Status Session::BulkLoad(const Tree& tree, const std::function<bool(KeyValue*)>& next) {
  return impl_->BulkLoad(tree, next);
}

absl::StatusOr<CheckReport> Session::Check(const Tree& tree, const CheckOptions& options) {
  return impl_->Check(tree, options);
}

absl::StatusOr<SizeEstimate> Session::EstimateSize(const Tree& tree,
                                                   const EstimateOptions& options) {
  absl::StatusOr<SizeEstimate> estimate = SizeEstimate();
  PANDO_RETURN_IF_ERROR(impl_->Perform(tree, options.operation, [&](OperationContext& operation) {
    estimate = ImplOf(tree).routed().EstimateSize(operation, options.reads_max);
    return estimate.status();
  }));
  return estimate;
}

void Session::Spawn(std::function<void()> task) { impl_->Spawn(std::move(task)); }
void Session::Run() { impl_->Run(); }

void Session::SleepUntil(int64_t time_ns) {
  Scheduler& scheduler = impl_->scheduler();
  if (Scheduler::Current() == &scheduler) {
    scheduler.SleepUntil(time_ns);
  } else {
    scheduler.Spawn([&scheduler, time_ns] { scheduler.SleepUntil(time_ns); });
    impl_->RunTasks();
  }
}

}  // namespace pando
