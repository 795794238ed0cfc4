// A configuration as it comes in. Everybody who reaches an agent can open the call, so that nothing
// of it is parsed that has not been measured, and nothing of size before the sender has shown the
// boot id of this process, which the controller and the agents of the same partitions know.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::rpc {

class IncomingConfiguration {
 public:
  // Limits: bytes of all portions, and of memory that the first and all of them take.
  static constexpr uint64_t kMostBytes = 64 << 20;
  static constexpr uint64_t kFirstMemory = 256 << 10;
  static constexpr uint64_t kMostMemory = 512 << 20;

  // `boot_id` is of this process.
  explicit IncomingConfiguration(std::string boot_id) : boot_id_(std::move(boot_id)) {}

  // The next portion; an error ends the call. FailedPrecondition: the sender does not mean this
  // process. ResourceExhausted: it exceeds a limit.
  absl::Status Add(const grpc::ByteBuffer& portion);
  bool IsWhole() const { return any_ && !whole_.more_follow(); }
  // When all portions are there; Aborted if the last is missing.
  absl::StatusOr<vipuagent::ConfigureRequest> Take();

 private:
  const std::string boot_id_;
  vipuagent::ConfigureRequest whole_;
  bool any_ = false;
  uint64_t bytes_ = 0, memory_ = 0;
};

}  // namespace vpod::rpc
