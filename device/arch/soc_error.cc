#include "device/arch/soc_error.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "device/base/text.h"

namespace vpod::arch {

bool IsSocError(absl::string_view name) {
  const std::vector<absl::string_view> names = absl::StrSplit(kSocErrors, '|');
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status CheckSocError(absl::string_view what, absl::string_view name) {
  if (IsSocError(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is '", base::Printable(name, 64),
                                                 "', must be one of ",
                                                 absl::StrReplaceAll(kSocErrors, {{"|", ", "}})));
}

}  // namespace vpod::arch
