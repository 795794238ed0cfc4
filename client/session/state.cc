// Many variables in one call of a session.
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod::session {

template <class Variables>
absl::Status Session::CheckState(const Variables& variables) const {
  for (const auto& each : variables) {
    VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(each.variable));
    const uint64_t bytes = declared->host_type().bytes();
    if (bytes == each.bytes && each.data != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable '", each.variable, "' has ", bytes, " bytes; ", each.bytes,
                     each.data == nullptr ? " at a null pointer" : "", " given"));
  }
  return absl::OkStatus();
}

absl::Status Session::ReadState(absl::Span<const ReadInto> variables, uint32_t replica) {
  VPOD_RETURN_IF_ERROR(CheckProcess());
  VPOD_RETURN_IF_ERROR(CheckState(variables));
  for (const ReadInto& each : variables) {
    VPOD_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(each.variable, replica));
    std::memcpy(each.data, bytes.data(), each.bytes);
  }
  return absl::OkStatus();
}

absl::Status Session::WriteState(absl::Span<const WriteFrom> variables,
                                 std::optional<uint32_t> replica) {
  VPOD_RETURN_IF_ERROR(CheckProcess());
  VPOD_RETURN_IF_ERROR(CheckState(variables));
  if (replica && *replica >= device_->local_replicas()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replica ", *replica, " does not exist; there are ", device_->local_replicas()));
  }
  for (const WriteFrom& each : variables) {
    VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(each.variable));
    if (!replica || declared->shards <= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable '", each.variable, "' is shared out among ", declared->shards,
                     " replicas, so that replica ", *replica, " cannot be written alone"));
  }
  for (const WriteFrom& each : variables) {
    const absl::string_view bytes(static_cast<const char*>(each.data), each.bytes);
    VPOD_RETURN_IF_ERROR(replica ? device_->WriteVariable(each.variable, bytes, replica)
                                 : WriteBytes(each.variable, bytes));
  }
  return absl::OkStatus();
}

}  // namespace vpod::session
