// The networks that are timed and measured, compiled and with random data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/session/session.h"

namespace vpod::benchmarks {

struct NetworkOptions {
  // mnist, resnet18, resnet18-stem7, resnet50, mobilenet, mobilenet224, efficientnet-b0, encoder512
  // or lstm256.
  std::string name;
  int64_t batch = 1;
  bool training = true;
  bool half = false;  // float16
  uint32_t replicas = 1;
  bool allow_out_of_memory = false;  // on an IPUModel
};

// One program, "run": a step of training with momentum, or an inference. InvalidArgument for
// another name and for a batch below 1.
absl::StatusOr<compiler::Compiled> Compile(const NetworkOptions& options);
// Fills the streams of a session on a device of that many replicas.
absl::Status FillStreams(const NetworkOptions& options, session::Session& session);

}  // namespace vpod::benchmarks
