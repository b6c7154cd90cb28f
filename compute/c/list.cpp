#include <any>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/sized.h"

namespace pando::c {
namespace {

// The list's elements. InvalidArgument: they are of another type.
template <typename Element>
absl::StatusOr<const std::vector<Element>*> ElementsOf(const ListObject& list) {
  const auto* const elements = std::get_if<std::vector<Element>>(&list.elements);
  if (elements != nullptr) return elements;
  return absl::InvalidArgumentError("a list of something else");
}

template <typename Element>
absl::StatusOr<const Element*> ElementAt(const ListObject& list, size_t index) {
  PANDO_ASSIGN_OR_RETURN(const auto* const elements, ElementsOf<Element>(list));
  if (index < elements->size()) return &(*elements)[index];
  return absl::OutOfRangeError(
      absl::StrCat("element ", index, " of a list that has ", elements->size()));
}

template <typename Element>
pando_code Array(const pando_list* list, const Element** array) {
  return Call<From::kAnywhere>([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(CheckGiven(array, "where the array goes"));
    Held<ListObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(list));
    PANDO_ASSIGN_OR_RETURN(const auto* const elements, ElementsOf<Element>(*held));
    *array = elements->data();
    return absl::OkStatus();
  });
}

template <typename Element>
pando_code Info(const pando_list* list, size_t index, Element* info) {
  return Call<From::kAnywhere>([&]() -> absl::Status {
    Held<ListObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(list));
    PANDO_ASSIGN_OR_RETURN(const Element* const element, ElementAt<Element>(*held, index));
    return WriteSized(*element, info, "info");
  });
}

}  // namespace

absl::Status PublishList(ListObject::Elements elements, std::any storage, pando_list** to) {
  return Publish<ListObject>(to, std::move(elements), std::move(storage));
}

pando_result ResultOf(const absl::Status& status, std::string_view value) {
  return {CodeOf(status), BytesOf(value), BytesOf(MessageOf(status))};
}

}  // namespace pando::c

using pando::c::Call;
using pando::c::Close;
using pando::c::From;
using pando::c::Held;
using pando::c::Kind;
using pando::c::ListObject;

extern "C" {

pando_code pando_close_list(pando_list* list) {
  return Call<From::kAnywhere>([&] { return Close(list, Kind::kList); });
}

pando_code pando_list_size(const pando_list* list, size_t* size) {
  return Call<From::kAnywhere>([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckGiven(size, "where the size goes"));
    Held<ListObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(list));
    *size = std::visit([](const auto& elements) { return elements.size(); }, held->elements);
    return absl::OkStatus();
  });
}

pando_code pando_list_results(const pando_list* list, const pando_result** results) {
  return pando::c::Array(list, results);
}
pando_code pando_list_rows(const pando_list* list, const pando_row** rows) {
  return pando::c::Array(list, rows);
}

pando_code pando_list_text(const pando_list* list, size_t index, const char** text) {
  return Call<From::kAnywhere>([&]() -> absl::Status {
    PANDO_RETURN_IF_ERROR(pando::c::CheckGiven(text, "where the text goes"));
    Held<ListObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(list));
    PANDO_ASSIGN_OR_RETURN(const auto* const element,
                           pando::c::ElementAt<std::string>(*held, index));
    *text = element->c_str();
    return absl::OkStatus();
  });
}

pando_code pando_list_tree(const pando_list* list, size_t index, pando_tree_info* info) {
  return pando::c::Info(list, index, info);
}
pando_code pando_list_server(const pando_list* list, size_t index, pando_server_info* info) {
  return pando::c::Info(list, index, info);
}
pando_code pando_list_range(const pando_list* list, size_t index, pando_range_info* info) {
  return pando::c::Info(list, index, info);
}
pando_code pando_list_member(const pando_list* list, size_t index, pando_member_info* info) {
  return pando::c::Info(list, index, info);
}

}  // extern "C"
