// A configuration on its way to an agent: in messages of a size that gRPC takes.
#pragma once

#include <cstddef>
#include <vector>

#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::rpc {

// Far below what agents take, since one partition may be larger.
inline constexpr size_t kPortionBytes = 4 << 20;

// The most bytes of a configuration that is sent as one message. An agent takes a first message of
// 256 KiB of memory at most, and a partition in memory is several times as large as on the wire.
inline constexpr size_t kSingleBytes = 8 << 10;

// The messages of VipuAgent.Configure that say what `whole` says: each but the last is followed by
// more. A small configuration, as of one new partition, is a single message. Otherwise the first
// has what is not repeated, so that it is small: the agent learns from it whether the sender may go
// on. The others have partitions of at most `portion_bytes` or a single one.
std::vector<vipuagent::ConfigureRequest> SplitInPortions(const vipuagent::ConfigureRequest& whole,
                                                         size_t portion_bytes = kPortionBytes);

}  // namespace vpod::rpc
