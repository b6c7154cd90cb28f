#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/session_call.h"
#include "pando/client.h"

namespace pando::c {
namespace {

using PlainWrite = absl::Status (Session::*)(const Tree&, std::string_view, std::string_view,
                                             const OperationOptions&);

pando_code WritePlain(PlainWrite write, pando_session* session, const pando_tree* tree,
                      pando_bytes key, pando_bytes value, const pando_operation_options* options) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    PANDO_RETURN_IF_ERROR(CheckBytes(value, "the value"));
    return WithSession(session, tree, options, [&](const Work& work) {
      return (work.session.*write)(work.tree, ViewOf(key), ViewOf(value), work.options);
    });
  });
}

// A write that may give the present value back: `write(work)`, into its buffer.
template <typename ConditionalWrite>
absl::Status WriteIf(pando_session* session, const pando_tree* tree, void* actual, size_t capacity,
                     size_t* actual_size, const pando_operation_options* options,
                     const ConditionalWrite& write) {
  return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckAnswer(work.tree, actual, capacity, actual_size));
    absl::Status status = write(work);
    if (IsConditionFailed(status)) GiveAnswer(work.buffer, actual, actual_size);
    return status;
  });
}

absl::Status TooShortError(size_t value_bytes, size_t capacity) {
  return absl::OutOfRangeError(
      absl::StrCat("a value of ", value_bytes, " bytes, and a buffer of ", capacity));
}

}  // namespace

void SessionObject::EndCursor(LeftCursor cursor) {
  {
    std::lock_guard lock(mutex);
    left_cursors.push_back(std::move(cursor));
    has_left_cursors = true;
  }
  if (!in_use.exchange(true)) Release();
}

void SessionObject::Release() {
  do {
    if (has_left_cursors) {
      std::vector<LeftCursor> ended;
      std::lock_guard lock(mutex);
      has_left_cursors = false;
      ended.swap(left_cursors);
    }
    in_use = false;
  } while (has_left_cursors && !in_use.exchange(true));
}

}  // namespace pando::c

using pando::Session;
using pando::c::Call;
using pando::c::CheckBytes;
using pando::c::CheckGiven;
using pando::c::ViewOf;
using pando::c::WithSession;
using pando::c::Work;

extern "C" {

pando_code pando_open_session(pando_client* client, pando_session** session) {
  return pando::c::CallMaking(session, "session", [&]() -> absl::Status {
    pando::c::Held<pando::c::ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Session> made, held->client->NewSession());
    return pando::c::Publish<pando::c::SessionObject>(session, held.shared(), std::move(made));
  });
}

pando_code pando_close_session(pando_session* session) {
  return Call([&] { return pando::c::Close(session, pando::c::Kind::kSession); });
}

pando_code pando_get(pando_session* session, const pando_tree* tree, pando_bytes key, void* value,
                     size_t capacity, size_t* value_size, const pando_operation_options* options) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    PANDO_RETURN_IF_ERROR(CheckGiven(value_size, "where the value's size goes"));
    if (capacity > 0) PANDO_RETURN_IF_ERROR(CheckGiven(value, "the buffer"));
    return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
      PANDO_RETURN_IF_ERROR(work.session.GetTo(work.tree, ViewOf(key), &work.buffer, work.options));
      *value_size = work.buffer.size();
      if (work.buffer.size() > capacity) {
        return pando::c::TooShortError(work.buffer.size(), capacity);
      }
      pando::c::GiveAnswer(work.buffer, value, value_size);
      return absl::OkStatus();
    });
  });
}

pando_code pando_put(pando_session* session, const pando_tree* tree, pando_bytes key,
                     pando_bytes value, const pando_operation_options* options) {
  return pando::c::WritePlain(&Session::Put, session, tree, key, value, options);
}
pando_code pando_insert(pando_session* session, const pando_tree* tree, pando_bytes key,
                        pando_bytes value, const pando_operation_options* options) {
  return pando::c::WritePlain(&Session::Insert, session, tree, key, value, options);
}
pando_code pando_update(pando_session* session, const pando_tree* tree, pando_bytes key,
                        pando_bytes value, const pando_operation_options* options) {
  return pando::c::WritePlain(&Session::Update, session, tree, key, value, options);
}

pando_code pando_erase(pando_session* session, const pando_tree* tree, pando_bytes key,
                       const pando_operation_options* options) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    return WithSession(session, tree, options, [&](const Work& work) {
      return work.session.Erase(work.tree, ViewOf(key), work.options);
    });
  });
}

pando_code pando_replace(pando_session* session, const pando_tree* tree, pando_bytes key,
                         pando_bytes expected, pando_bytes desired, void* actual, size_t capacity,
                         size_t* actual_size, const pando_operation_options* options) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    PANDO_RETURN_IF_ERROR(CheckBytes(expected, "the expected value"));
    PANDO_RETURN_IF_ERROR(CheckBytes(desired, "the desired value"));
    return pando::c::WriteIf(
        session, tree, actual, capacity, actual_size, options, [&](const Work& work) {
          return work.session.Replace(work.tree, ViewOf(key), ViewOf(expected), ViewOf(desired),
                                      work.options, &work.buffer);
        });
  });
}

pando_code pando_erase_if(pando_session* session, const pando_tree* tree, pando_bytes key,
                          pando_bytes expected, void* actual, size_t capacity, size_t* actual_size,
                          const pando_operation_options* options) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    PANDO_RETURN_IF_ERROR(CheckBytes(expected, "the expected value"));
    return pando::c::WriteIf(session, tree, actual, capacity, actual_size, options,
                             [&](const Work& work) {
                               return work.session.EraseIf(work.tree, ViewOf(key), ViewOf(expected),
                                                           work.options, &work.buffer);
                             });
  });
}

pando_code pando_upsert(pando_session* session, const pando_tree* tree, pando_bytes key,
                        uint32_t function, pando_bytes operand, void* value, size_t capacity,
                        size_t* value_size, const pando_operation_options* options) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckBytes(key, "the key"));
    PANDO_RETURN_IF_ERROR(CheckBytes(operand, "the operand"));
    return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
      PANDO_RETURN_IF_ERROR(pando::c::CheckAnswer(work.tree, value, capacity, value_size));
      absl::Status status = work.session.UpsertTo(work.tree, ViewOf(key),
                                                  static_cast<pando::UpsertFunction>(function),
                                                  ViewOf(operand), &work.buffer, work.options);
      if (status.ok() || pando::IsConditionFailed(status)) {
        pando::c::GiveAnswer(work.buffer, value, value_size);
      }
      return status;
    });
  });
}

pando_code pando_flush(pando_session* session, const pando_tree* tree,
                       const pando_operation_options* options) {
  return Call([&] {
    return WithSession(session, tree, options, [&](const Work& work) {
      return work.session.Flush(work.tree, work.options);
    });
  });
}

}  // extern "C"
