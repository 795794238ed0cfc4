#include "client/ipuof/gcda_options.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/vipu/config.h"
#include "device/arch/soc_error.h"
#include "device/base/status.h"

namespace vpod::ipuof {
namespace {

constexpr char kOptions[] = "GCDA_OPTIONS";
constexpr char kMonitor[] = "GCDA_MONITOR";
constexpr char kSuppressUtilisation[] = "GCDA_SUPPRESS_UTILISATION_MEASUREMENT";

template <class... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(kOptions, ": ", parts...));
}

absl::Status ReadBool(const std::string& option, const std::string& text, bool& value) {
  if (text != "true" && text != "false")
    return Wrong("option '", option, "' is '", text, "', must be true or false");
  value = text == "true";
  return absl::OkStatus();
}

// Names as they stand in the list: IPUSOFTERR, or several with commas or blanks, quoted or not.
absl::Status ReadErrors(const std::string& text, v1::SimulatedSocError& error) {
  for (absl::string_view name :
       absl::StrSplit(text, absl::ByAnyChar(", \"'[]"), absl::SkipEmpty())) {
    const absl::Status known =
        arch::CheckSocError("an error of 'simulateSOCError.errorList'", name);
    if (!known.ok()) return Wrong(known.message());
    error.add_errors(std::string(name));
  }
  if (error.errors().empty()) return Wrong("option 'simulateSOCError.errorList' names no error");
  return absl::OkStatus();
}

absl::Status ReadOption(const std::string& option, const std::string& text, GcdaOptions& options,
                        bool& triggered) {
  static const std::set<std::string> without_effect = {"configFile", "discoverUSBDevices",
                                                       "forceHSPPosted"};
  if (option == "enableMonitoring") return ReadBool(option, text, options.enable_monitoring);
  if (option == "monitorUtilisation") return ReadBool(option, text, options.monitor_utilisation);
  if (option == "simulateSOCError.errorList") return ReadErrors(text, options.simulated_error);
  if (option == "simulateSOCError.rearmOnReset") {
    bool rearm = false;
    VPOD_RETURN_IF_ERROR(ReadBool(option, text, rearm));
    options.simulated_error.set_rearm_on_reset(rearm);
    return absl::OkStatus();
  }
  if (option == "simulateSOCError.triggerCount") {
    uint32_t count = 0;
    if (!absl::SimpleAtoi(text, &count) || count == 0)
      return Wrong("option '", option, "' is '", text, "', must be a number of 1 or more");
    options.simulated_error.set_trigger_count(count);
    triggered = true;
    return absl::OkStatus();
  }
  if (without_effect.contains(option)) return absl::OkStatus();
  return Wrong("unknown option '", option, "'");
}

}  // namespace

absl::StatusOr<GcdaOptions> ParseGcdaOptions(
    const std::map<std::string, std::string>& environment) {
  const auto variable = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  GcdaOptions options;
  bool triggered = false;
  if (const std::string text = variable(kOptions); !text.empty()) {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Wrong("'", text, "' is not a JSON object of strings");
    for (const auto& [option, value] : json.items()) {
      if (!value.is_string()) return Wrong("option '", option, "' is not a string");
      VPOD_RETURN_IF_ERROR(ReadOption(option, value.get<std::string>(), options, triggered));
    }
  }
  if (!options.simulated_error.errors().empty() && !triggered)
    return Wrong("simulateSOCError.errorList needs simulateSOCError.triggerCount");
  if (variable(kMonitor) == "1") options.enable_monitoring = true;
  if (variable(kSuppressUtilisation) == "1") options.monitor_utilisation = false;
  return options;
}

absl::StatusOr<GcdaOptions> ReadGcdaOptions() {
  std::map<std::string, std::string> environment;
  for (const char* name : {kOptions, kMonitor, kSuppressUtilisation})
    environment[name] = vipu::Environment(name);
  return ParseGcdaOptions(environment);
}

}  // namespace vpod::ipuof
