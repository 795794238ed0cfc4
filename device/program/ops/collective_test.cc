#include "device/program/ops/collective.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace vpod::program {
namespace {

v1::Instruction Parse(const std::string& text) {
  v1::Instruction instruction;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction)) << text;
  return instruction;
}

v1::ReplicaGroup Group(v1::ReplicaGroup::Kind kind, uint32_t size) {
  v1::ReplicaGroup group;
  group.set_kind(kind);
  group.set_size(size);
  return group;
}

TEST(CollectiveTest, GroupsAreThoseOfTheirKind) {
  const auto members = [](v1::ReplicaGroup::Kind kind, uint32_t size, uint32_t replica) {
    const GroupMembers group = MembersOf(Group(kind, size), 12, replica);
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < group.size; ++i) all.push_back(group.first + i * group.stride);
    return all;
  };
  using Replicas = std::vector<uint32_t>;
  EXPECT_EQ(members(v1::ReplicaGroup::ALL, 0, 5).size(), 12u);
  EXPECT_EQ(members(v1::ReplicaGroup::CONSECUTIVE, 4, 5), (Replicas{4, 5, 6, 7}));
  EXPECT_EQ(members(v1::ReplicaGroup::ORTHOGONAL, 4, 5), (Replicas{2, 5, 8, 11}));
  EXPECT_EQ(members(v1::ReplicaGroup::ORTHOGONAL, 12, 5).size(), 12u);
  EXPECT_EQ(members(v1::ReplicaGroup::CONSECUTIVE, 1, 5), (Replicas{5}));
  EXPECT_EQ(*GroupSize(Group(v1::ReplicaGroup::ORTHOGONAL, 4), 12), 4u);
  EXPECT_EQ(GroupSize(Group(v1::ReplicaGroup::ORTHOGONAL, 5), 12).status().message(),
            "groups of 5 replicas do not make up the job of 12");
}

TEST(CollectiveTest, OutputsAreGatheredAndScatteredAlongTheFirstDimension) {
  const auto type = [](const std::string& text, Dims dims, uint32_t members) {
    const v1::Instruction instruction = Parse(text);
    const auto output = CollectiveType(*CollectiveOf(instruction), {v1::FLOAT32, dims}, members);
    return output.ok() ? output->ToString() : std::string(output.status().message());
  };
  EXPECT_EQ(type("all_reduce{operator:SUM}", {8, 3}, 1), "float32[8,3]");
  EXPECT_EQ(type("reduce_scatter{operator:MAX}", {8, 3}, 4), "float32[2,3]");
  EXPECT_EQ(type("all_gather{}", {2, 3}, 4), "float32[8,3]");
  EXPECT_EQ(type("all_gather{}", {}, 4), "float32[4]");
  EXPECT_EQ(type("all_to_all{}", {8, 3}, 4), "float32[8,3]");
  EXPECT_EQ(type("broadcast{root:1}", {}, 1), "float32[]");
  EXPECT_EQ(type("all_to_all{}", {7, 3}, 4),
            "the first dimension of float32[7,3] is not a multiple of the group's 4 replicas");
}

// A program with one step on tensors of 8 and 2 elements.
absl::Status CheckJob(const std::string& step, uint32_t replicas) {
  v1::Executable executable;
  v1::Ipu* ipu = executable.add_ipus();
  for (int64_t elements : {8, 2}) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(v1::FLOAT32);
    tensor->add_dims(elements);
  }
  v1::Program* program = executable.add_programs();
  program->set_name("main");
  program->add_functions(0);
  *ipu->add_functions()->add_instructions() = Parse(step);
  return CheckReplicas(executable, replicas);
}

TEST(CollectiveTest, AJobMustHaveTheReplicasThatItsShapesSay) {
  EXPECT_TRUE(CheckJob("reduce_scatter{operator:SUM} inputs:0 outputs:1", 4).ok());
  EXPECT_EQ(CheckJob("reduce_scatter{operator:SUM} inputs:0 outputs:1", 8).message(),
            "IPU 0 function 0 instruction 0: the reduce-scatter over 8 replicas does not turn 8 "
            "elements into 2 (collective_c10)");
  EXPECT_TRUE(CheckJob("all_gather{} inputs:1 outputs:0", 4).ok());
  EXPECT_FALSE(CheckJob("all_gather{} inputs:1 outputs:0", 2).ok());
  EXPECT_TRUE(CheckJob("all_to_all{} inputs:0 outputs:0", 4).ok());
  EXPECT_FALSE(CheckJob("all_to_all{} inputs:0 outputs:0", 16).ok());
  EXPECT_TRUE(CheckJob("broadcast{root:3} inputs:0 outputs:0", 4).ok());
  EXPECT_EQ(CheckJob("broadcast{root:4} inputs:0 outputs:0", 4).message(),
            "IPU 0 function 0 instruction 0: root 4 is not a position in a group of 4 replicas, "
            "must be 0 to 3 (collective_c4)");
  EXPECT_EQ(
      CheckJob("all_reduce{operator:SUM group{kind:CONSECUTIVE size:4}} inputs:0 outputs:0", 6)
          .message(),
      "IPU 0 function 0 instruction 0: groups of 4 replicas do not make up the job of 6");
}

}  // namespace
}  // namespace vpod::program
