#include "tools/vipu/arguments.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::tools {
namespace {

constexpr char kUsage[] = "vpod/usage";
constexpr char kAfterJson[] = "vpod/after-json";

bool IsSwitch(const Flag& flag) { return *flag.value == '\0'; }
bool IsOptional(const Flag& flag) { return *flag.value == '['; }
bool IsList(const Flag& flag) { return absl::EndsWith(flag.value, ",…>"); }

}  // namespace

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsage, {});
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsage).has_value(); }

absl::Status AfterJson(absl::Status status) {
  status.SetPayload(kAfterJson, {});
  return status;
}

bool IsAfterJson(const absl::Status& status) { return status.GetPayload(kAfterJson).has_value(); }

bool TakesWord(const Flag& flag) { return !IsSwitch(flag) && !IsOptional(flag); }

const Flag* FindFlag(const FlagList& flags, const std::string& word) {
  for (const Flag* flag : flags) {
    if (word == absl::StrCat("--", flag->name)) return flag;
    for (absl::string_view alias : absl::StrSplit(flag->aliases, ',', absl::SkipEmpty())) {
      if (word == absl::StrCat(alias.size() == 1 ? "-" : "--", alias)) return flag;
    }
  }
  return nullptr;
}

absl::Status Arguments::Parse(const std::vector<std::string>& arguments, const FlagList& flags) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!base::IsTextLine(argument)) {
      return UsageError(absl::StrCat("Argument '", absl::CHexEscape(argument),
                                     "' must be one line of UTF-8 text."));
    }
    if (argument.size() < 2 || argument[0] != '-') {
      words_.push_back(argument);
      continue;
    }
    // A short flag may be joined to its value: -Hhost.
    const bool joined = argument[1] != '-' && argument.size() > 2 && argument[2] != '=';
    const size_t sign = joined ? 1 : argument.find('=');
    const std::string name = argument.substr(0, joined ? 2 : sign);
    const Flag* flag = FindFlag(flags, name);
    if (flag == nullptr) return UsageError(absl::StrCat("Unknown flag: ", name, "."));
    std::string value;
    if (sign != std::string::npos) {
      value = argument.substr(sign + 1);
    } else if (!TakesWord(*flag)) {
      value = IsSwitch(*flag) ? "true" : "1";
    } else if (++i < arguments.size()) {
      value = arguments[i];
    }
    VPOD_RETURN_IF_ERROR(Add(*flag, value));
  }
  return absl::OkStatus();
}

absl::Status Arguments::Add(const Flag& flag, const std::string& value) {
  if (!base::IsTextLine(value)) {
    return UsageError(
        absl::StrCat("Argument '", absl::CHexEscape(value), "' must be one line of UTF-8 text."));
  }
  if (value.empty() && !IsList(flag))
    return UsageError(absl::StrCat("Flag --", flag.name, " needs a value."));
  if (IsSwitch(flag) && value != "true" && value != "false") {
    return UsageError(
        absl::StrCat("Flag --", flag.name, " takes true or false, not '", value, "'."));
  }
  if (!values_.emplace(&flag, value).second)
    return UsageError(absl::StrCat("Flag --", flag.name, " is given more than once."));
  return absl::OkStatus();
}

FlagList Arguments::given() const {
  FlagList flags;
  for (const auto& [flag, value] : values_) flags.push_back(flag);
  return flags;
}

std::string Arguments::Text(const Flag& flag) const {
  const auto it = values_.find(&flag);
  return it == values_.end() ? "" : it->second;
}

bool Arguments::Switch(const Flag& flag, bool absent) const {
  return Has(flag) ? Text(flag) == "true" : absent;
}

absl::StatusOr<uint32_t> Arguments::Number(const Flag& flag, uint32_t absent) const {
  uint32_t value = absent;
  if (!Has(flag)) return value;
  const std::string text = Text(flag);
  if (absl::SimpleAtoi(text, &value)) {
    if (value >= flag.least) return value;
    return UsageError(
        absl::StrCat("Flag --", flag.name, " takes ", flag.least, " or more, not ", text, "."));
  }
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    return UsageError(
        absl::StrCat("Flag --", flag.name, " takes at most ", UINT32_MAX, ", not ", text, "."));
  }
  return UsageError(absl::StrCat("Flag --", flag.name, " needs a number of ", flag.least,
                                 " or more, not '", text, "'."));
}

absl::StatusOr<double> Arguments::Real(const Flag& flag, double absent) const {
  double value = absent;
  if (Has(flag) && (!absl::SimpleAtod(Text(flag), &value) || !std::isfinite(value) || value < 0)) {
    return UsageError(absl::StrCat("Flag --", flag.name, " needs a number of 0 or more, not '",
                                   Text(flag), "'."));
  }
  return value;
}

std::vector<std::string> Arguments::List(const Flag& flag) const {
  return absl::StrSplit(Text(flag), ',', absl::SkipEmpty());
}

}  // namespace vpod::tools
