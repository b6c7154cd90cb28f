#include "common/registry/registry.h"

#include "absl/strings/str_cat.h"
#include "common/registry/local_registry.h"

namespace pando {

absl::StatusOr<std::unique_ptr<Registry>> OpenRegistry(std::string_view registry) {
  constexpr std::string_view kLocal = "local:";
  std::string_view directory = registry;
  if (directory.starts_with(kLocal)) {
    directory.remove_prefix(kLocal.size());
  } else if (const size_t colon = directory.find(':');
             colon != std::string_view::npos && directory.find('/') > colon) {
    return absl::InvalidArgumentError(
        absl::StrCat("registry '", std::string(registry),
                     "': only a directory (\"DIR\" or \"local:DIR\") is known"));
  }
  if (directory.empty()) {
    return absl::InvalidArgumentError("the registry is empty: give the memory servers' directory");
  }
  return LocalRegistry::Open(std::string(directory));
}

}  // namespace pando
