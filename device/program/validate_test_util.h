// Helpers of the tests of Validate for single instructions: programs of steps in protobuf's text
// format, on tensors that all of them know.
#pragma once

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"

namespace vpod::program {

template <class Message>
Message FromText(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// The tensors that the instructions below refer to by index.
inline const TensorType kTensors[] = {
    {v1::FLOAT32, {4, 6}},        // 0
    {v1::FLOAT32, {6, 5}},        // 1
    {v1::FLOAT32, {4, 5}},        // 2
    {v1::INT32, {4}},             // 3
    {v1::FLOAT32, {4}},           // 4
    {v1::FLOAT16, {4, 6}},        // 5
    {v1::FLOAT32, {4, 6}},        // 6: the wide accumulator
    {v1::FLOAT32, {}},            // 7
    {v1::BOOL, {4, 6}},           // 8
    {v1::FLOAT32, {2, 3, 8, 8}},  // 9: image
    {v1::FLOAT32, {4, 3, 3, 3}},  // 10: weights
    {v1::FLOAT32, {2, 4, 8, 8}},  // 11: their convolution with a padding of 1
    {v1::FLOAT32, {2, 3, 4, 4}},  // 12: the image pooled by 2
    {v1::UINT8, {4}},             // 13
    {v1::UINT32, {4}},            // 14
    {v1::FLOAT32, {24}},          // 15
    {v1::FLOAT32, {4, 6}},        // 16
    {v1::FLOAT16, {4, 6}},        // 17
    {v1::FLOAT32, {4, 6}},        // 18
    {v1::INT32, {2, 3, 4, 4}},    // 19: places of the largest elements
    {v1::FLOAT32, {3}},           // 20: one for each channel
    {v1::FLOAT32, {3}},           // 21
    {v1::FLOAT32, {3}},           // 22
    {v1::FLOAT32, {5}},           // 23: hyper-parameters
    {v1::BOOL, {}},               // 24
    {v1::INT32, {}},              // 25
    {v1::UINT32, {}},             // 26
    {v1::UINT32, {2}},            // 27: seed
    {v1::FLOAT32, {6, 4}},        // 28
    {v1::FLOAT32, {2, 3}},        // 29
    {v1::FLOAT32, {4, 3}},        // 30
    {v1::FLOAT32, {2, 3, 8, 8}},  // 31: another image
    {v1::FLOAT32, {3}},           // 32
    {v1::FLOAT32, {3}},           // 33
    {v1::UINT32, {2}},            // 34
};
inline constexpr char kPadded[] =
    "groups:1 window{kernel:[3,3] stride:[1,1] dilation:[1,1] pad_before:[1,1] pad_after:[1,1]}";
inline constexpr char kPooled[] =
    "window{kernel:[2,2] stride:[2,2] dilation:[1,1] pad_before:[0,0] pad_after:[0,0]}";
// Attribute of the gradients.
inline constexpr char kSize[] = " image_size:[8,8]";

inline void AddTensors(v1::Ipu* ipu) {
  for (const TensorType& type : kTensors) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(type.type);
    tensor->mutable_dims()->Add(type.dims.begin(), type.dims.end());
    tensor->set_wide_accumulator(ipu->tensors_size() == 7);
    const Dims strides = ChannelsLastStrides(type.dims);
    const bool is_image = type.rank() == 4 && ipu->tensors_size() != 11;
    if (is_image) tensor->mutable_strides()->Add(strides.begin(), strides.end());
    tensor->set_offset(ipu->arena_bytes());
    ipu->set_arena_bytes(ipu->arena_bytes() + (ArenaBytes(*tensor) + 63) / 64 * 64);
  }
}

// One program, a function for each IPU in protobuf's text format.
inline v1::Executable WithFunctions(const std::vector<std::string>& functions) {
  v1::Executable executable;
  executable.set_ipus_per_replica(static_cast<uint32_t>(functions.size()));
  v1::Program* program = executable.add_programs();
  program->set_name("main");
  for (const std::string& function : functions) {
    v1::Ipu* ipu = executable.add_ipus();
    AddTensors(ipu);
    *ipu->add_functions() = FromText<v1::Function>(function);
    program->add_functions(0);
  }
  *executable.add_streams() = FromText<v1::Stream>(
      "name:'in' to_device:true type:FLOAT32 dims:4 dims:6 transfers_per_run:6");
  *executable.add_streams() =
      FromText<v1::Stream>("name:'out' type:INT32 dims:4 transfers_per_run:1");
  *executable.add_variables() = FromText<v1::Variable>("name:'w' tensor:16");
  *executable.mutable_ipus(0)->add_remote_buffers() =
      FromText<v1::RemoteBuffer>("name:'stash' type:FLOAT32 dims:4 dims:6 rows:3");
  return executable;
}

inline v1::Executable WithSteps(const std::string& steps) { return WithFunctions({steps}); }

inline void ExpectValid(const v1::Executable& executable) {
  const absl::Status status = Validate(executable, {});
  EXPECT_TRUE(status.ok()) << status;
}

inline void ExpectRefused(const v1::Executable& executable, const std::string& part,
                          const Limits& limits = {}) {
  const absl::Status status = Validate(executable, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
}

struct BadStep {
  std::string step;
  std::string message;
};

inline void ExpectRefusedSteps(const std::vector<BadStep>& steps) {
  for (const BadStep& bad : steps) {
    SCOPED_TRACE(bad.step);
    const v1::Executable executable =
        WithSteps(absl::StrCat("instructions{fill{} outputs:0} instructions{", bad.step, "}"));
    const std::string op = bad.step.substr(0, bad.step.find('{'));
    ExpectRefused(executable, absl::StrCat("IPU 0 function 0 instruction 1 (", op, "): "));
    ExpectRefused(executable, bad.message);
  }
}

}  // namespace vpod::program
