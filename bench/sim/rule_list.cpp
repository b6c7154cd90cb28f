#include "bench/sim/rule_list.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/sim/broken_rules_json.h"
#include "common/base/rule.h"

namespace pando {

std::string ListRules() {
  const nlohmann::json runs = nlohmann::json::parse(std::string_view(kBrokenRulesJson));
  std::string list;
  for (const RuleVariant& variant : RuleVariants()) {
    const std::string name(variant.name);
    std::string command(variant.test);
    if (command.empty()) {
      const auto run = runs.find(name);
      command = run == runs.end()
                    ? "nothing"
                    : absl::StrCat("pando-sim-broken ", run->at("flags").get<std::string>(),
                                   " --break=", name);
    }
    absl::StrAppend(&list, name.substr(0, name.find('_')), "\t", name, "\t",
                    std::string(variant.holds), "\t", command, "\n");
  }
  return list;
}

}  // namespace pando
