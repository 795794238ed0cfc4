// How much memory a message takes once it is parsed, from its bytes alone. Protobuf makes an object
// of every empty submessage, string and unknown field, which are two bytes on the wire: what comes
// from others is measured before it is parsed.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

// An upper bound of the bytes of heap that parsing `bytes` as a generated message of `type` takes.
// ResourceExhausted as soon as that exceeds `limit`, which names both; InvalidArgument: they are no
// message. Takes time in proportion to what was read until then, and no memory to speak of.
absl::StatusOr<uint64_t> ParsedSize(const google::protobuf::Descriptor& type,
                                    absl::string_view bytes, uint64_t limit);

}  // namespace vpod::base
