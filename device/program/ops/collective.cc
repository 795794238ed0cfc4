#include "device/program/ops/collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

using v1::Instruction;

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

bool IsReducing(OpKind kind) {
  return kind == Instruction::kAllReduce || kind == Instruction::kReduceScatter;
}

// Whether `members` replicas make outputs of `output` elements from inputs of `input`.
absl::Status CheckElements(const Collective& op, uint64_t input, uint64_t output,
                           uint64_t members) {
  const bool fits = op.kind == Instruction::kReduceScatter ? output * members == input
                    : op.kind == Instruction::kAllGather   ? input * members == output
                    : op.kind == Instruction::kAllToAll    ? input % members == 0
                                                           : true;
  if (fits) return absl::OkStatus();
  return Invalid(absl::StrCat("the ", op.name(), " over ", members, " replicas does not turn ",
                              input, " elements into ", output));
}

}  // namespace

std::optional<Collective> CollectiveOf(const Instruction& instruction) {
  struct Row {
    OpKind kind;
    CollectiveDef def;
    void (*read)(const Instruction& instruction, Collective& into);
  };
  static constexpr Row kRows[] = {
      {Instruction::kAllReduce,
       {.name = "all-reduce", .gcl_name = "AllReduce", .in_place = true, .gathers = false},
       [](const Instruction& instruction, Collective& into) {
         into.op = instruction.all_reduce().operator_();
         into.group = &instruction.all_reduce().group();
       }},
      {Instruction::kReduceScatter,
       {.name = "reduce-scatter", .gcl_name = "ReduceScatter", .in_place = false, .gathers = false},
       [](const Instruction& instruction, Collective& into) {
         into.op = instruction.reduce_scatter().operator_();
         into.group = &instruction.reduce_scatter().group();
       }},
      {Instruction::kAllGather,
       {.name = "all-gather", .gcl_name = "AllGather", .in_place = false, .gathers = true},
       [](const Instruction& instruction, Collective& into) {
         into.group = &instruction.all_gather().group();
       }},
      {Instruction::kAllToAll,
       {.name = "all-to-all", .gcl_name = "AllToAll", .in_place = false, .gathers = false},
       [](const Instruction& instruction, Collective& into) {
         into.group = &instruction.all_to_all().group();
       }},
      {Instruction::kBroadcast,
       {.name = "broadcast", .gcl_name = "Broadcast", .in_place = true, .gathers = false},
       [](const Instruction& instruction, Collective& into) {
         into.root = instruction.broadcast().root();
         into.group = &instruction.broadcast().group();
       }},
  };
  for (const Row& row : kRows) {
    if (row.kind != instruction.attributes_case()) continue;
    Collective view{.kind = row.kind,
                    .def = &row.def,
                    .inputs = &instruction.inputs(),
                    .outputs = &instruction.outputs()};
    row.read(instruction, view);
    return view;
  }
  return std::nullopt;
}

absl::Status CheckCollective(const Collective& op) {
  if (IsReducing(op.kind) && (op.op <= v1::REDUCE_OPERATOR_UNSPECIFIED || op.op > v1::SQUARE_ADD))
    return Invalid(absl::StrCat("unknown reduce operator ", op.op));
  const v1::ReplicaGroup& group = *op.group;
  if (group.kind() < v1::ReplicaGroup::ALL || group.kind() > v1::ReplicaGroup::ORTHOGONAL)
    return Invalid(absl::StrCat("unknown kind of replica group ", group.kind()));
  const bool all = group.kind() == v1::ReplicaGroup::ALL;
  if (all != (group.size() == 0)) {
    return Invalid(all ? "a group of all replicas is given no size"
                       : "a replica group needs a size of 1 or more");
  }
  if (!all && op.root >= group.size()) {
    return Invalid(absl::StrCat("root ", op.root, " is not a position in a group of ", group.size(),
                                " replicas, must be 0 to ", group.size() - 1));
  }
  if (op.inputs->size() != op.outputs->size()) {
    return Invalid(absl::StrCat("the ", op.name(), " has ", op.inputs->size(), " inputs and ",
                                op.outputs->size(), " outputs, must have as many of both"));
  }
  return absl::OkStatus();
}

absl::Status CheckCollectiveTypes(const Collective& op, const TensorType& input,
                                  const TensorType& output) {
  const bool number = IsFloat(input.type) || input.type == v1::INT32;
  if (!number || (op.op == v1::MEAN && input.type == v1::INT32)) {
    return Invalid(absl::StrCat(
        "cannot ", op.op == v1::MEAN ? "take the mean of" : op.name(), " ", input.ToString(),
        op.op == v1::MEAN ? ", must be floats" : ", must be floats or int32"));
  }
  if (input.empty() || output.empty()) {
    return Invalid(absl::StrCat("the ", op.name(), " of ", input.ToString(), " to ",
                                output.ToString(), " moves no elements"));
  }
  const auto from = static_cast<uint64_t>(input.elements());
  const auto to = static_cast<uint64_t>(output.elements());
  const bool resizes = op.kind == Instruction::kReduceScatter || op.kind == Instruction::kAllGather;
  if (input.type != output.type || (!resizes && input.dims != output.dims)) {
    return Invalid(
        absl::StrCat("the ", op.name(), " of ", input.ToString(), " is not ", output.ToString()));
  }
  uint64_t members = op.group->size();
  if (members == 0 && resizes)
    members = std::max<uint64_t>(1, std::max(from, to) / std::min(from, to));
  return CheckElements(op, from, to, std::max<uint64_t>(1, members));
}

absl::StatusOr<uint32_t> GroupSize(const v1::ReplicaGroup& group, uint32_t total_replicas) {
  if (group.kind() == v1::ReplicaGroup::ALL) return total_replicas;
  if (group.size() == 0 || total_replicas % group.size() != 0) {
    return Invalid(absl::StrCat("groups of ", group.size(), " replicas do not make up the job of ",
                                total_replicas));
  }
  return group.size();
}

GroupMembers MembersOf(const v1::ReplicaGroup& group, uint32_t total_replicas, uint32_t replica) {
  const uint32_t size = group.size();
  switch (group.kind()) {
    case v1::ReplicaGroup::CONSECUTIVE:
      return {replica / size * size, 1, size};
    case v1::ReplicaGroup::ORTHOGONAL: {
      const uint32_t stride = std::max(1u, total_replicas / size);
      return {replica % stride, stride, size};
    }
    default:
      return {0, 1, total_replicas};
  }
}

namespace {

absl::Status CheckReplicasOf(const Collective& op, const v1::Ipu& ipu, uint32_t total_replicas) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t members, GroupSize(*op.group, total_replicas));
  if (op.root >= members) {
    return Invalid(absl::StrCat("root ", op.root, " is not a position in a group of ", members,
                                " replicas, must be 0 to ", members - 1));
  }
  const auto elements = [&](uint32_t tensor) {
    return static_cast<uint64_t>(TypeOf(ipu.tensors(static_cast<int>(tensor))).elements());
  };
  for (int i = 0; i < op.inputs->size(); ++i) {
    VPOD_RETURN_IF_ERROR(
        CheckElements(op, elements(op.inputs->Get(i)), elements(op.outputs->Get(i)), members));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReplicas(const v1::Executable& executable, uint32_t total_replicas) {
  for (int i = 0; i < executable.ipus_size(); ++i) {
    const v1::Ipu& ipu = executable.ipus(i);
    for (int f = 0; f < ipu.functions_size(); ++f) {
      for (int step = 0; step < ipu.functions(f).instructions_size(); ++step) {
        const auto op = CollectiveOf(ipu.functions(f).instructions(step));
        if (!op.has_value()) continue;
        const absl::Status status = CheckReplicasOf(*op, ipu, total_replicas);
        if (!status.ok()) {
          return Invalid(absl::StrCat("IPU ", i, " function ", f, " instruction ", step, ": ",
                                      status.message()));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorType> CollectiveType(const Collective& op, const TensorType& input,
                                          uint32_t members) {
  VPOD_RETURN_IF_ERROR(Check(input));
  TensorType output = input;
  const bool divides = op.kind == Instruction::kReduceScatter || op.kind == Instruction::kAllToAll;
  if (divides && (input.dims.empty() || members == 0 || input.dims[0] % members != 0)) {
    return Invalid(absl::StrCat("the first dimension of ", input.ToString(),
                                " is not a multiple of the group's ", members, " replicas"));
  }
  if (op.kind == Instruction::kReduceScatter) output.dims[0] /= members;
  if (op.kind == Instruction::kAllGather) {
    if (output.dims.empty()) output.dims = {1};
    output.dims[0] *= members;
  }
  VPOD_RETURN_IF_ERROR(Check(output));
  VPOD_RETURN_IF_ERROR(CheckCollectiveTypes(op, input, output));
  return output;
}

namespace {

// Pieces of all tensors are computed side by side: where an output lies, nothing else of the step
// may lie but the input that it replaces.
absl::Status CheckDisjoint(const Collective& op, const Operands& tensors) {
  std::vector<ArenaRange> ranges;
  for (int i = 0; i < op.inputs->size(); ++i) {
    const uint32_t input = op.inputs->Get(i), output = op.outputs->Get(i);
    if (!op.def->in_place || input != output)
      ranges.push_back(RangeOf(**tensors.Any(input), /*output=*/false));
    ranges.push_back(RangeOf(**tensors.Any(output), /*output=*/true));
  }
  if (OutputsLieApart(std::move(ranges))) return absl::OkStatus();
  return Invalid(
      absl::StrCat("an output of the ", op.name(), " shares bytes with another of its tensors"));
}

absl::Status CheckStep(const Instruction& instruction, const Operands& tensors) {
  const Collective op = *CollectiveOf(instruction);
  VPOD_RETURN_IF_ERROR(CheckCollective(op));
  for (int i = 0; i < op.inputs->size(); ++i) {
    const uint32_t index = op.inputs->Get(i);
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* input, tensors.Any(index));
    if (!op.reduces()) VPOD_RETURN_IF_ERROR(tensors.Plain(index).status());
    VPOD_ASSIGN_OR_RETURN(const TensorType output, tensors.Plain(op.outputs->Get(i)));
    VPOD_RETURN_IF_ERROR(CheckCollectiveTypes(op, TypeOf(*input), output));
  }
  return CheckDisjoint(op, tensors);
}

}  // namespace

std::vector<OpDef> CollectiveOps() {
  std::vector<OpDef> ops;
  for (const auto kind : {Instruction::kAllReduce, Instruction::kReduceScatter,
                          Instruction::kAllGather, Instruction::kAllToAll, Instruction::kBroadcast})
    ops.push_back({.kind = kind,
                   .role = Role::kCollective,
                   .inputs = {1, kAnyNumber},
                   .outputs = {1, kAnyNumber},
                   .check = CheckStep});
  return ops;
}

}  // namespace vpod::program
