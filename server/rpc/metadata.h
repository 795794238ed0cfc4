// Headers of a call in which callers name themselves.
#pragma once

#include <grpcpp/support/string_ref.h>

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::rpc {

inline constexpr char kUserIdHeader[] = "vipu-user-id", kAccessKeyHeader[] = "vipu-access-key";

// The value of a header; empty without it. InvalidArgument: it is there more than once, so that two
// readers could take different ones, or is not a word that can be stored and printed. The value is
// not in the message, because it may be a key.
inline absl::StatusOr<std::string> OnlyValue(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, const char* name) {
  const auto [first, last] = metadata.equal_range(name);
  if (first == last) return std::string();
  if (std::next(first) != last)
    return absl::InvalidArgumentError(absl::StrCat("Header ", name, " is given more than once."));
  std::string value(first->second.data(), first->second.size());
  if (value.empty() || base::IsHeaderWord(value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("Header ", name, " must have ", base::kHeaderWordRule, "."));
}

}  // namespace vpod::rpc
