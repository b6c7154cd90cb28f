// What the handles of the C interface stand for.
#pragma once

#include <any>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/handle.h"
#include "pando.h"
#include "pando/client.h"
#include "pando/executor.h"

namespace pando::c {

struct ClientObject : Object {
  static constexpr Kind kKind = Kind::kClient;
  explicit ClientObject(std::unique_ptr<Client> made) : Object(kKind), client(std::move(made)) {}
  void End() override { client.reset(); }

  // Closes those of `closed_trees` that no executor uses any more, which may take a while. Not in a
  // callback, nor in any other coroutine.
  void LetTreesGo();

  // A tree whose handle is closed, and how many operations an executor has accepted for it.
  struct ClosedTree {
    std::shared_ptr<const Tree> tree;
    std::shared_ptr<const std::atomic<size_t>> submitted;
  };
  std::unique_ptr<Client> client;
  std::mutex mutex;
  std::vector<ClosedTree> closed_trees;  // under the mutex
};

struct TreeObject : Object {
  static constexpr Kind kKind = Kind::kTree;
  TreeObject(std::shared_ptr<ClientObject> client, std::unique_ptr<Tree> made)
      : Object(kKind, std::move(client)), tree(std::move(made)) {}
  // What was submitted for it ends as if the handle were open.
  void End() override {
    auto& client = static_cast<ClientObject&>(*parent());
    {
      std::lock_guard lock(client.mutex);
      client.closed_trees.push_back({std::move(tree), submitted});
    }
    client.LetTreesGo();
  }

  std::shared_ptr<const Tree> tree;  // also its cursors', which end before the client does
  // Operations that executors have accepted and not answered.
  const std::shared_ptr<std::atomic<size_t>> submitted = std::make_shared<std::atomic<size_t>>(0);
};

struct SessionObject : Object {
  static constexpr Kind kKind = Kind::kSession;
  SessionObject(std::shared_ptr<ClientObject> client, std::unique_ptr<Session> made)
      : Object(kKind, std::move(client)), session(std::move(made)) {}
  void End() override { session.reset(); }

  // What a cursor that is closed leaves behind. Its session counts its cursors.
  struct LeftCursor {
    std::shared_ptr<const Tree> tree;
    std::unique_ptr<Cursor> cursor;
  };
  // Ends it now, or leaves it to whoever uses the session, and does not wait for that.
  void EndCursor(LeftCursor cursor);
  // By whoever has the session. Again where one was left behind meanwhile.
  void Release();

  std::unique_ptr<Session> session;
  std::string buffer;  // of the call that uses it
  std::atomic<bool> in_use{false};
  std::atomic<bool> has_left_cursors{false};
  std::mutex mutex;
  std::vector<LeftCursor> left_cursors;  // under the mutex
};

// The right to use a session, which one thread has at a time.
class SessionUse {
 public:
  SessionUse() = default;
  ~SessionUse() {
    if (session_ != nullptr) session_->Release();
  }
  SessionUse(const SessionUse&) = delete;
  SessionUse& operator=(const SessionUse&) = delete;

  // FailedPrecondition: another thread has it.
  absl::Status Take(SessionObject& session) {
    if (session.in_use.exchange(true)) {
      return absl::FailedPreconditionError(
          "the session is in use by another thread: give each thread a session of its own");
    }
    session_ = &session;
    return absl::OkStatus();
  }

 private:
  SessionObject* session_ = nullptr;
};

struct CursorObject : Object {
  static constexpr Kind kKind = Kind::kCursor;
  CursorObject(std::shared_ptr<SessionObject> session, std::shared_ptr<const Tree> of)
      : Object(kKind, std::move(session)), tree(std::move(of)) {}
  SessionObject& session() const { return static_cast<SessionObject&>(*parent()); }
  void End() override { session().EndCursor({std::move(tree), std::move(cursor)}); }

  std::shared_ptr<const Tree> tree;
  OperationCost cost;  // since it was last added to `cost_to`
  pando_operation_cost* cost_to = nullptr;
  std::unique_ptr<Cursor> cursor;  // adds to `cost`
};

struct ExecutorObject : Object {
  static constexpr Kind kKind = Kind::kExecutor;
  ExecutorObject(std::shared_ptr<ClientObject> client, std::unique_ptr<Executor> made)
      : Object(kKind, std::move(client)), executor(std::move(made)) {}
  ClientObject& client() const { return static_cast<ClientObject&>(*parent()); }
  void End() override {
    executor.reset();
    client().LetTreesGo();
  }

  std::unique_ptr<Executor> executor;
};

struct ListObject : Object {
  static constexpr Kind kKind = Kind::kList;
  using Elements =
      std::variant<std::vector<pando_result>, std::vector<pando_row>, std::vector<std::string>,
                   std::vector<pando_tree_info>, std::vector<pando_server_info>,
                   std::vector<pando_range_info>, std::vector<pando_member_info>>;
  ListObject(Elements made, std::any what_they_point_to)
      : Object(kKind), elements(std::move(made)), storage(std::move(what_they_point_to)) {}

  const Elements elements;
  const std::any storage;
};

// A handle for a new object, to `*to`.
template <typename T, typename Handle, typename... Arguments>
absl::Status Publish(Handle** to, Arguments&&... arguments) {
  auto object = std::make_shared<T>(std::forward<Arguments>(arguments)...);
  absl::StatusOr<void*> handle = Open(std::move(object));
  if (!handle.ok()) return handle.status();
  *to = static_cast<Handle*>(*handle);
  return absl::OkStatus();
}

// `storage` is what the elements point to: it stays where it is when it is moved (a vector), or is
// in a shared_ptr.
absl::Status PublishList(ListObject::Elements elements, std::any storage, pando_list** to);

// A result as a list has it; it points to what it is made of.
pando_result ResultOf(const absl::Status& status, std::string_view value);

// Call() of a function that makes something: NULL until it is there, also inside a callback.
template <typename Handle, typename Job>
pando_code CallMaking(Handle** to, const char* what, const Job& job) noexcept {
  if (to != nullptr) *to = nullptr;
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckGiven(to, what));
    return job();
  });
}

// InvalidArgument: they came of different clients.
inline absl::Status CheckSameClient(const Object& a, const Object& b) {
  if (a.parent() == b.parent()) [[likely]]
    return absl::OkStatus();
  return absl::InvalidArgumentError("the tree was opened by another client");
}

}  // namespace pando::c
