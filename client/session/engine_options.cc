#include "client/session/engine_options.h"

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace vpod::session {
namespace {

constexpr char kOptions[] = "POPLAR_ENGINE_OPTIONS";

template <class... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(kOptions, ": ", parts...));
}

}  // namespace

absl::StatusOr<LoadOptions> ParseEngineOptions(const std::string& text) {
  LoadOptions options;
  if (text.empty()) return options;
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("'", text, "' is not a JSON object of strings");
  const std::map<std::string, bool*> known = {{"debug.checkFinite", &options.check_finite},
                                              {"vpod.sharing", &options.sharing}};
  for (const auto& [option, value] : json.items()) {
    if (!value.is_string()) return Wrong("option '", option, "' is not a string");
    const auto target = known.find(option);
    if (target == known.end()) continue;
    const auto choice = value.get<std::string>();
    if (choice != "true" && choice != "false")
      return Wrong("option '", option, "' is '", choice, "', must be true or false");
    *target->second = choice == "true";
  }
  return options;
}

absl::StatusOr<LoadOptions> ReadEngineOptions() {
  const char* text = std::getenv(kOptions);
  return ParseEngineOptions(text == nullptr ? "" : text);
}

}  // namespace vpod::session
