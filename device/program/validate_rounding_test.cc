// Which instructions may say how their float16 outputs are rounded.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"

namespace vpod::program {
namespace {

using testing::HasSubstr;

constexpr char kGood[] = "rounding{seed:0 counter:1 number:9}";

// Tensors: 0 seed, 1 counter, 2 and 3 float16, 4 float32, 5 a column of a uint32 matrix, 6 and 7
// vectors of channels, 8 BOOL.
v1::Executable With(const std::string& instruction) {
  v1::Executable executable;
  executable.set_ipus_per_replica(1);
  v1::Ipu* ipu = executable.add_ipus();
  const auto add = [&](v1::DataType type, const Dims& dims, const Dims& strides = {}) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(type);
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    tensor->mutable_strides()->Add(strides.begin(), strides.end());
    tensor->set_offset(ipu->arena_bytes());
    ipu->set_arena_bytes(ipu->arena_bytes() + 64);
  };
  add(v1::UINT32, {2});
  add(v1::UINT32, {});
  add(v1::FLOAT16, {2, 3});
  add(v1::FLOAT16, {2, 3});
  add(v1::FLOAT32, {2, 3});
  add(v1::UINT32, {2}, {2});
  add(v1::FLOAT32, {3});
  add(v1::FLOAT32, {3});
  add(v1::BOOL, {2, 3});
  add(v1::FLOAT32, {3});
  add(v1::FLOAT32, {3});
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      instruction, ipu->add_functions()->add_instructions()))
      << instruction;
  v1::Program* program = executable.add_programs();
  program->set_name("main");
  program->add_functions(0);
  return executable;
}

TEST(ValidateRoundingTest, AcceptsOpsWithAFloat16Output) {
  for (const std::string& instruction : std::vector<std::string>{
           "unary{operator:TANH} inputs:2 outputs:3", "binary{operator:ADD} inputs:[2,3] outputs:2",
           "cast{type:FLOAT16} inputs:4 outputs:2",
           "batch_norm{epsilon:1e-5} inputs:[2,6,7] outputs:[3,9,10]",
           "batch_norm{epsilon:1e-5 activation:RELU} inputs:[2,6,7] outputs:[3,9,10]"}) {
    const absl::Status status = Validate(With(absl::StrCat(instruction, " ", kGood)), {});
    EXPECT_TRUE(status.ok()) << instruction << ": " << status;
  }
}

TEST(ValidateRoundingTest, RefusesWhatIsRoundedNowhere) {
  struct Refused {
    std::string instruction, rounding, part;
  };
  const std::string tanh = "unary{operator:TANH} inputs:2 outputs:3";
  for (const auto& [instruction, rounding, part] : std::vector<Refused>{
           {"copy{} inputs:2 outputs:3", kGood, "rounding is not for copy"},
           {"fill{} outputs:3", kGood, "rounding is not for fill"},
           {"random{distribution:NORMAL type:FLOAT16 dims:[2,3]} inputs:[0,1,1] outputs:3", kGood,
            "rounding is not for random"},
           {"all_reduce{operator:SUM} inputs:2 outputs:3", kGood, "rounding is not for all_reduce"},
           {"unary{operator:TANH} inputs:4 outputs:4", kGood, "there is no float16 output"},
           {"binary{operator:LESS} inputs:[2,3] outputs:8", kGood, "there is no float16 output"},
           {"map{steps{unary{operator:TANH} inputs:0}} inputs:2 outputs:3", kGood,
            "rounding is not for map"},
           {absl::StrCat("map{steps{unary{operator:TANH} inputs:0 ", kGood,
                         "}} inputs:2 outputs:3"),
            "", "steps of a map have no outputs and no rounding"},
           {"batch_norm{epsilon:1e-5 add:true} inputs:[2,6,7,2] outputs:[3,6,7]", kGood,
            "with `add`, SILU or `recompute` there is no stochastic rounding"},
           {"batch_norm_inference{epsilon:1e-5 add:true} inputs:[2,6,7,6,7,2] outputs:3", kGood,
            "with `add`, SILU or `recompute` there is no stochastic rounding"},
           {"batch_norm_gradient{epsilon:1e-5 add:true} inputs:[2,2,6,6,7,2] outputs:[3,6,7]",
            kGood, "with `add`, SILU or `recompute` there is no stochastic rounding"},
           {tanh, "rounding{seed:99 counter:1}", "the rounding's seed: tensor 99 does not exist"},
           {tanh, "rounding{seed:0 counter:99}",
            "the rounding's counter: tensor 99 does not exist"},
           {tanh, "rounding{seed:1 counter:1}",
            "the rounding's seed: tensor 1 is uint32[], must be uint32[2]"},
           {tanh, "rounding{seed:5 counter:1}", "the rounding's seed: tensor 5 must be row-major"},
           {tanh, "rounding{seed:0 counter:0}",
            "the rounding's counter: tensor 0 is uint32[2], must be uint32[]"},
           {tanh, "rounding{seed:0 counter:4}", "the rounding's counter: tensor 4 is float32"}}) {
    const absl::Status status = Validate(With(absl::StrCat(instruction, " ", rounding)), {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << instruction;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

}  // namespace
}  // namespace vpod::program
