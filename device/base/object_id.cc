#include "device/base/object_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace vpod::base {

absl::Status CheckObjectId(absl::string_view id) {
  const auto is_alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  const auto fits = [&](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; };
  if (!id.empty() && id.size() <= kMaxObjectId && is_alphanumeric(id[0]) &&
      std::all_of(id.begin(), id.end(), fits))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Invalid id '", id, "'. Ids have 1 to ", kMaxObjectId,
                   " letters, digits, '.', '_' and '-' and begin with a letter or digit."));
}

}  // namespace vpod::base
