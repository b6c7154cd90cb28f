#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
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

constexpr pando_check_options kCheckDefaults = PANDO_CHECK_OPTIONS_INIT;

// The entries that a program's callback gives.
class Entries {
 public:
  Entries(pando_next_row next, void* context) : next_(next), context_(context) {}

  // As Session::BulkLoad() asks for it, which takes what is thrown for the end of the load.
  bool Next(KeyValue* entry) {
    pando_row row{};
    int more;
    {
      const CallbackScope scope(Inside::kCallback);
      more = next_(context_, &row);
    }
    if (more == 0) return false;
    if (more != 1) {
      Refuse(absl::CancelledError(absl::StrCat("the callback has returned ", more)));
    }
    for (const auto& [bytes, name, to] :
         {std::tuple(row.key, "the key of a row", &entry->key),
          std::tuple(row.value, "the value of a row", &entry->value)}) {
      const absl::Status checked = CheckBytes(bytes, name);
      if (!checked.ok()) Refuse(checked);
      to->assign(ViewOf(bytes));
    }
    return true;
  }
  // What was refused here, whose own status the load does not keep.
  const absl::Status& refusal() const { return refusal_; }

 private:
  [[noreturn]] void Refuse(const absl::Status& why) {
    refusal_ = Annotate(why, "bulk load: nothing was loaded");
    throw std::runtime_error(std::string(why.message()));
  }

  const pando_next_row next_;
  void* const context_;
  absl::Status refusal_;
};

absl::StatusOr<CheckOptions> CheckOptionsOf(const pando_check_options* given) {
  PANDO_ASSIGN_OR_RETURN(const pando_check_options c,
                         ReadSized(given, kCheckDefaults, "check options"));
  CheckOptions options{
      .recheck_ms = c.recheck_ms, .problems_max = c.problems_max, .timeout_ms = c.timeout_ms};
  PANDO_RETURN_IF_ERROR(ReadFlag(c.quiet_tree, "quiet_tree", &options.quiet_tree));
  return options;
}

pando_check_report ReportOf(const CheckReport& report) {
  pando_check_report c{};
  c.problems = report.problems.size();
  c.levels = report.nodes_per_level.size();
  c.leaves = report.nodes_per_level.empty() ? 0 : report.nodes_per_level.front();
  c.keys = report.keys;
  c.key_bytes = report.key_bytes;
  c.value_bytes = report.value_bytes;
  c.nodes_bytes = report.nodes_bytes;
  c.missing_separators = report.missing_separators;
  c.locks_held = report.locks_held;
  c.looked_again = report.looked_again;
  c.nodes_reachable = report.nodes.reachable;
  c.nodes_held = report.nodes.held;
  c.nodes_free = report.nodes.free;
  c.nodes_orphans = report.nodes.orphans;
  c.cells = report.cells;
  c.cells_bytes = report.cells_bytes;
  c.cells_unused = report.cells_unused;
  return c;
}

pando_range_erased ErasedOf(const RangeErased& erased, std::string* next) {
  *next = erased.next;
  return {.size = sizeof(pando_range_erased),
          .erased = erased.erased,
          .done = erased.done ? 1 : 0,
          .next = BytesOf(*next)};
}

}  // namespace
}  // namespace pando::c

using pando::c::Call;
using pando::c::WithSession;
using pando::c::Work;

extern "C" {

pando_code pando_bulk_load(pando_session* session, const pando_tree* tree, pando_next_row next,
                           void* context) {
  return Call([&]() -> absl::Status {
    if (next == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    return WithSession(session, tree, nullptr, [&](const Work& work) {
      pando::c::Entries entries(next, context);
      const absl::Status loaded = work.session.BulkLoad(
          work.tree, [&](pando::KeyValue* entry) { return entries.Next(entry); });
      return entries.refusal().ok() ? loaded : entries.refusal();
    });
  });
}

pando_code pando_erase_range(pando_session* session, const pando_tree* tree, pando_bytes from,
                             const pando_bytes* to, pando_erase_progress progress, void* context,
                             const pando_operation_options* options, pando_range_erased* result) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckBytes(from, "from"));
    std::optional<std::string_view> end;
    if (to != nullptr) {
      PANDO_RETURN_IF_ERROR(pando::c::CheckBytes(*to, "to"));
      end = pando::c::ViewOf(*to);
    }
    if (result != nullptr) {
      PANDO_RETURN_IF_ERROR(pando::c::CheckSized(result, "the result"));
      // Where it does not come to that: nothing is done.
      PANDO_RETURN_IF_ERROR(pando::c::WriteSized(
          pando_range_erased{
              .size = sizeof(pando_range_erased), .erased = 0, .done = 0, .next = from},
          result, "the result"));
    }
    return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
      pando::EraseRangeOptions how{.operation = work.options};
      if (progress != nullptr) {
        how.progress = [&](const pando::RangeErased& so_far) {
          const pando_range_erased erased = pando::c::ErasedOf(so_far, &work.buffer);
          const pando::c::CallbackScope scope(pando::c::Inside::kCallback);
          return progress(context, &erased) == 0;
        };
      }
      pando::RangeErased erased;
      const absl::Status status =
          work.session.EraseRange(work.tree, pando::c::ViewOf(from), end, &erased, how);
      if (result != nullptr) {
        PANDO_RETURN_IF_ERROR(
            pando::c::WriteSized(pando::c::ErasedOf(erased, &work.buffer), result, "the result"));
      }
      return status;
    });
  });
}

pando_code pando_estimate_size(pando_session* session, const pando_tree* tree, int32_t reads_max,
                               const pando_operation_options* options,
                               pando_size_estimate* estimate) {
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckSized(estimate, "the estimate"));
    return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
      pando::EstimateOptions how{.operation = work.options};
      if (reads_max != 0) how.reads_max = reads_max;
      PANDO_ASSIGN_OR_RETURN(const pando::SizeEstimate size,
                             work.session.EstimateSize(work.tree, how));
      return pando::c::WriteSized(pando_size_estimate{.size = sizeof(pando_size_estimate),
                                                      .keys = size.keys,
                                                      .key_bytes = size.key_bytes,
                                                      .value_bytes = size.value_bytes,
                                                      .leaves = size.leaves,
                                                      .nodes_bytes = size.nodes_bytes,
                                                      .relative_error = size.relative_error,
                                                      .cells_bytes = size.cells_bytes},
                                  estimate, "the estimate");
    });
  });
}

pando_code pando_check(pando_session* session, const pando_tree* tree,
                       const pando_check_options* options, pando_check_report* report,
                       pando_list** problems) {
  if (problems != nullptr) *problems = nullptr;  // also inside a callback
  return Call([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckSized(report, "the report"));
    PANDO_ASSIGN_OR_RETURN(const pando::CheckOptions how, pando::c::CheckOptionsOf(options));
    return WithSession(session, tree, nullptr, [&](const Work& work) -> absl::Status {
      PANDO_ASSIGN_OR_RETURN(pando::CheckReport found, work.session.Check(work.tree, how));
      PANDO_RETURN_IF_ERROR(pando::c::WriteSized(pando::c::ReportOf(found), report, "the report"));
      if (problems == nullptr) return absl::OkStatus();
      return pando::c::PublishList(std::move(found.problems), {}, problems);
    });
  });
}

pando_code pando_sweep(pando_session* session, const pando_tree* tree,
                       const pando_operation_options* options, pando_sweep_result* result) {
  return Call([&]() -> absl::Status {
    if (result != nullptr) PANDO_RETURN_IF_ERROR(pando::c::CheckSized(result, "the result"));
    return WithSession(session, tree, options, [&](const Work& work) -> absl::Status {
      pando::SweepResult swept;
      PANDO_RETURN_IF_ERROR(work.session.Sweep(work.tree, &swept, work.options));
      if (result == nullptr) return absl::OkStatus();
      return pando::c::WriteSized(
          pando_sweep_result{sizeof(pando_sweep_result), swept.freed, swept.settled, swept.left},
          result, "the result");
    });
  });
}

}  // extern "C"
