// Calls of gRPC services with messages of any bytes, whether or not they are messages.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace vpod::testing {

// Calls a method ("/vipuuser.VipuUser/GetPartition") with one message and reads all answers, of
// which only the status counts.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                     const std::string& bytes,
                     const std::map<std::string, std::string>& metadata = {},
                     std::chrono::seconds patience = std::chrono::seconds(20));

// The unit again and again, as often as it fits into so many bytes.
std::string Repeat(const std::string& unit, size_t bytes);

}  // namespace vpod::testing
