// Text in protobuf messages.
#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace vpod::base {

// InvalidArgument naming the first field, at any depth, whose text is not UTF-8. Protobuf sends
// such a message all the same, and the other side cannot read any of it.
absl::Status CheckUtf8(const google::protobuf::Message& message);

}  // namespace vpod::base
