// Small instructions and changes that break them, for constraints_test.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "device/program/op.h"
#include "device/program/validate_test_util.h"
#include "tests/support/small_ops.h"

namespace vpod::program {

// The small instruction of an op on IPU 0, with its tensors 4 KiB apart, and number 0 of everything
// that an instruction may refer to.
struct Step {
  explicit Step(const std::string& op) {
    const testing::SmallOp small = testing::SmallOps().at(op);
    instruction = testing::Attributes(small);
    executable = FromText<v1::Executable>(
        "ipus { remote_buffers { type: FLOAT32 dims: 8 rows: 2 } } exchanges { moves { to_ipu: 1 } "
        "} streams { type: FLOAT32 dims: 8 }");
    executable.mutable_streams(0)->set_to_device(instruction.has_stream_in());
    for (const TensorType& type : small.inputs) instruction.add_inputs(AddTensor(type));
    if (instruction.has_accumulate()) {
      Tensor(0).set_wide_accumulator(true);
      instruction.add_outputs(0);
      return;
    }
    for (const TensorType& type : small.outputs) instruction.add_outputs(AddTensor(type));
  }

  absl::Status Check() const {
    static const Limits limits;
    if (FindOp(instruction.attributes_case())->infer == nullptr)
      return CheckInstruction(instruction, Operands(executable, 0, limits));
    Types inputs;
    for (uint32_t input : instruction.inputs())
      inputs.push_back(TypeOf(executable.ipus(0).tensors(static_cast<int>(input))));
    return InferTypes(instruction, inputs).status();
  }

  uint32_t AddTensor(const TensorType& type) {
    const auto index = static_cast<uint32_t>(executable.ipus(0).tensors_size());
    executable.mutable_ipus(0)->add_tensors()->set_offset(index * 4096);
    SetType(index, type);
    return index;
  }
  void SetType(uint32_t index, const TensorType& type) {
    Tensor(index).set_type(type.type);
    Tensor(index).mutable_dims()->Assign(type.dims.begin(), type.dims.end());
  }
  v1::Tensor& Tensor(uint32_t index) {
    return *executable.mutable_ipus(0)->mutable_tensors(static_cast<int>(index));
  }
  google::protobuf::Message& Attributes() {
    return *instruction.GetReflection()->MutableMessage(
        &instruction,
        instruction.GetDescriptor()->FindFieldByNumber(instruction.attributes_case()));
  }

  v1::Instruction instruction;
  v1::Executable executable;
};

// --- Changes that break an instruction ---

using Change = std::function<void(Step&)>;

// Sets attributes, and appends to those that are repeated.
inline Change With(const std::string& text) {
  return [=](Step& step) {
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(text, &step.Attributes())) << text;
  };
}
// Sets all attributes.
inline Change Attributes(const std::string& text) {
  return [=](Step& step) {
    step.Attributes().Clear();
    With(text)(step);
  };
}
// Sets the first entry of a field of the window.
inline Change Window(const std::string& name, uint32_t value) {
  return [=](Step& step) {
    google::protobuf::Message& attributes = step.Attributes();
    auto* window = attributes.GetReflection()->MutableMessage(
        &attributes, attributes.GetDescriptor()->FindFieldByName("window"));
    window->GetReflection()->SetRepeatedUInt32(
        window, window->GetDescriptor()->FindFieldByName(name), 0, value);
  };
}
// Sets the type of an input, or adds the one behind the last.
inline Change Input(int i, const TensorType& type) {
  return [=](Step& step) {
    if (i == step.instruction.inputs_size()) step.instruction.add_inputs(step.AddTensor(type));
    step.SetType(step.instruction.inputs(i), type);
  };
}
inline Change Output(int i, const TensorType& type) {
  return [=](Step& step) {
    if (i == step.instruction.outputs_size()) step.instruction.add_outputs(step.AddTensor(type));
    step.SetType(step.instruction.outputs(i), type);
  };
}
inline Change WideInput(bool wide) {
  return [=](Step& step) { step.Tensor(step.instruction.inputs(0)).set_wide_accumulator(wide); };
}
inline void WideOutput(Step& step) {
  step.Tensor(step.instruction.outputs(0)).set_wide_accumulator(true);
}
inline void OutputOnInput(Step& step) {
  step.Tensor(step.instruction.outputs(0))
      .set_offset(step.Tensor(step.instruction.inputs(0)).offset());
}
inline void NoLastInput(Step& step) { step.instruction.mutable_inputs()->RemoveLast(); }
inline void WithRounding(Step& step) { step.instruction.mutable_rounding(); }

inline TensorType Float(Dims dims) { return {v1::FLOAT32, std::move(dims)}; }
inline TensorType Half(Dims dims) { return {v1::FLOAT16, std::move(dims)}; }
inline TensorType Int(Dims dims) { return {v1::INT32, std::move(dims)}; }
inline TensorType Word(Dims dims) { return {v1::UINT32, std::move(dims)}; }
inline TensorType Bool(Dims dims) { return {v1::BOOL, std::move(dims)}; }

}  // namespace vpod::program
