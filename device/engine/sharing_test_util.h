// An executable with variables that replicas can share, for the tests of engines that do.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/base/mutex.h"
#include "device/engine/engine.h"
#include "device/program/executable.h"

namespace vpod::engine {

inline constexpr size_t kElements = 1024;  // a page
inline constexpr uint64_t kShared = 6;     // pages: all variables but `own`

// m = rate * m + (sum of x over the replicas), w += m; `own` += x, which differs between replicas;
// `most` is the largest x. Only the update of m reads the sum, so that one replica needs it.
// "pick" sets w to the row of a table that the variable `row` names.
inline constexpr char kProgram[] = R"(
  ipus_per_replica: 1
  ipus {
    arena_bytes: 36864
    tensors { type: FLOAT32 dims: 1024 }
    tensors { type: FLOAT32 dims: 1024 offset: 4096 }
    tensors { type: FLOAT32 dims: 1024 offset: 8192 }
    tensors { type: FLOAT32 dims: 1024 offset: 12288 }
    tensors { type: FLOAT32 dims: 1024 offset: 16384 }
    tensors { type: FLOAT32 dims: 1024 offset: 20480 }
    tensors { type: INT32 dims: 1 offset: 24576 }
    tensors { type: FLOAT32 dims: 1 dims: 1024 offset: 28672 }
    tensors { type: FLOAT32 dims: 1 dims: 1024 }
    tensors { type: FLOAT32 dims: 1024 offset: 32768 }
    functions {
      instructions { stream_in {} outputs: 4 }
      instructions { all_reduce { operator: SUM } inputs: 4 outputs: 5 }
      instructions { all_reduce { operator: MAX } inputs: 4 outputs: 9 }
      instructions { binary { operator: MULTIPLY } inputs: 1 inputs: 2 outputs: 1 }
      instructions { binary { operator: ADD } inputs: 1 inputs: 5 outputs: 1 }
      instructions { binary { operator: ADD } inputs: 0 inputs: 1 outputs: 0 }
      instructions { binary { operator: ADD } inputs: 3 inputs: 4 outputs: 3 }
    }
    functions { instructions { gather {} inputs: 7 inputs: 6 outputs: 8 } }
    functions { instructions { call { function: 0 } } instructions { call { function: 1 } } }
  }
  variables { name: "w" }
  variables { name: "m" tensor: 1 }
  variables { name: "rate" tensor: 2 }
  variables { name: "own" tensor: 3 }
  variables { name: "row" tensor: 6 }
  variables { name: "table" tensor: 7 }
  variables { name: "most" tensor: 9 }
  streams { name: "x" to_device: true type: FLOAT32 dims: 1024 transfers_per_run: 1 }
  programs { name: "train" functions: 0 }
  programs { name: "pick" functions: 1 }
  programs { name: "train, then pick" functions: 2 }
)";

inline std::shared_ptr<const program::Executable> Parsed() {
  program::v1::Executable text;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kProgram, &text));
  auto executable = program::Executable::Make(std::move(text));
  EXPECT_TRUE(executable.ok()) << executable.status();
  return *std::move(executable);
}

inline std::string Filled(float value) {
  const std::vector<float> values(kElements, value);
  return {reinterpret_cast<const char*>(values.data()), kElements * sizeof(float)};
}

// The result of a run that was begun and may end later.
class RunEnd {
 public:
  Engine::Done Done() {
    return [this](const absl::StatusOr<RunResult>& done) {
      base::MutexLock lock(mutex_);
      // A message of its own: tsan does not see how abseil counts the references to one.
      result_ = absl::Status(done.status().code(), done.status().message());
      changed_.notify_all();
    };
  }
  absl::Status Wait() {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [&] { return result_.has_value(); });
    return *result_;
  }

 private:
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::Status> result_;
};

}  // namespace vpod::engine
