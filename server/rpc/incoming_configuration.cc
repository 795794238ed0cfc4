#include "server/rpc/incoming_configuration.h"

#include <grpcpp/support/slice.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "device/base/parsed_size.h"
#include "device/base/secret.h"

namespace vpod::rpc {

absl::Status IncomingConfiguration::Add(const grpc::ByteBuffer& portion) {
  const bool is_first = !std::exchange(any_, true);
  const uint64_t most = is_first ? kFirstMemory : kMostMemory;
  const auto too_large = [&] {
    return absl::ResourceExhaustedError(
        is_first ? absl::StrCat("the first message of the configuration is too large: it may take ",
                                kFirstMemory, " bytes of memory")
                 : absl::StrCat("the configuration is too large: it may have ", kMostBytes,
                                " bytes and take ", kMostMemory, " bytes of memory"));
  };
  bytes_ += portion.Length();
  // Before the bytes are copied into one piece.
  if (bytes_ > (is_first ? kFirstMemory : kMostBytes)) return too_large();
  grpc::Slice slice;
  if (!portion.DumpToSingleSlice(&slice).ok())
    return absl::InvalidArgumentError("the configuration cannot be read");
  const absl::string_view text(reinterpret_cast<const char*>(slice.begin()), slice.size());
  const absl::StatusOr<uint64_t> size =
      base::ParsedSize(*vipuagent::ConfigureRequest::descriptor(), text, most - memory_);
  if (absl::IsResourceExhausted(size.status())) return too_large();
  vipuagent::ConfigureRequest parsed;
  if (!size.ok() || !parsed.ParseFromArray(slice.begin(), static_cast<int>(slice.size())))
    return absl::InvalidArgumentError("the configuration cannot be read");
  if (is_first && !base::IsSecret(boot_id_, parsed.agent_boot_id())) {
    return absl::FailedPreconditionError(
        "the configuration does not name the boot id of this process");
  }
  memory_ += *size;
  parsed.DiscardUnknownFields();
  const bool more_follow = parsed.more_follow();
  if (is_first) {
    whole_ = std::move(parsed);
  } else {
    whole_.MergeFrom(parsed);
  }
  whole_.set_more_follow(more_follow);
  return absl::OkStatus();
}

absl::StatusOr<vipuagent::ConfigureRequest> IncomingConfiguration::Take() {
  if (!IsWhole()) return absl::AbortedError("the configuration breaks off");
  return std::move(whole_);
}

}  // namespace vpod::rpc
