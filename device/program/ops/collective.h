// The collectives of the op set, seen alike, and their rules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// A row of the table of collectives.
struct CollectiveDef {
  const char* name;      // "all-reduce"
  const char* gcl_name;  // as GCL calls it: "AllReduce"
  // Whether an output may replace its input.
  bool in_place;
  // Whether outputs are larger than inputs, so that the links carry the outputs.
  bool gathers;
};

// A collective instruction; the pointers are into it, but for `def`.
struct Collective {
  OpKind kind = v1::Instruction::kAllReduce;
  const CollectiveDef* def = nullptr;
  v1::ReduceOperator op = v1::REDUCE_OPERATOR_UNSPECIFIED;  // of the two that reduce
  uint32_t root = 0;                                        // of a broadcast
  const v1::ReplicaGroup* group = nullptr;
  const google::protobuf::RepeatedField<uint32_t>* inputs = nullptr;
  const google::protobuf::RepeatedField<uint32_t>* outputs = nullptr;

  bool reduces() const { return op != v1::REDUCE_OPERATOR_UNSPECIFIED; }
  const char* name() const { return def->name; }
  // Tensors of the larger side, which the links carry.
  const google::protobuf::RepeatedField<uint32_t>& carried() const {
    return def->gathers ? *outputs : *inputs;
  }
};

// The instruction as a collective, when it is one.
std::optional<Collective> CollectiveOf(const v1::Instruction& instruction);

// Checks the parts of a collective that do not depend on the number of replicas: its operator, its
// group, the number of its tensors.
absl::Status CheckCollective(const Collective& op);
// Whether a collective turns `input` into tensors of `output`. Shapes of gathered and scattered
// tensors are free; for a group of all, whose size the job decides, any multiple will do.
absl::Status CheckCollectiveTypes(const Collective& op, const TensorType& input,
                                  const TensorType& output);

// Members of each group of a job of `total_replicas`; InvalidArgument when groups of that size do
// not make up the job.
absl::StatusOr<uint32_t> GroupSize(const v1::ReplicaGroup& group, uint32_t total_replicas);

// The group of a replica, of a valid executable in a job that it fits: members first, first +
// stride, … `size` of them.
struct GroupMembers {
  uint32_t first = 0, stride = 1, size = 1;
};
GroupMembers MembersOf(const v1::ReplicaGroup& group, uint32_t total_replicas, uint32_t replica);

// Whether an executable is for jobs of `total_replicas`. Replicas of another number would train
// wrong without a word.
absl::Status CheckTotalReplicas(const v1::Executable& executable, uint32_t total_replicas);
// That, and whether all its collectives and sharded variables fit such a job. It is valid.
absl::Status CheckReplicas(const v1::Executable& executable, uint32_t total_replicas);

// For the graph builder: type of the output, gathered and scattered along the first dimension; of
// `members` replicas in each group.
absl::StatusOr<TensorType> CollectiveType(const Collective& op, const TensorType& input,
                                          uint32_t members);

}  // namespace vpod::program
