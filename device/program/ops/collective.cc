#include "device/program/ops/collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

using v1::Instruction;

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

constexpr Constraint kOperator{"collective_c1", "The operator is one of ReduceOperator."};
constexpr Constraint kGroupKind{"collective_c2",
                                "The kind of the replica group is ALL, CONSECUTIVE or ORTHOGONAL."};
constexpr Constraint kGroupSize{"collective_c3",
                                "A group has a size of 1 or more, the group of all replicas none."};
constexpr Constraint kRoot{"collective_c4", "The root is the position of a member of the group."};
constexpr Constraint kCount{"collective_c5", "There are as many outputs as inputs."};
constexpr Constraint kWide{"collective_c6",
                           "Only inputs that are reduced may be wide accumulators, and outputs "
                           "that a reduce-scatter makes of those."};
constexpr Constraint kNumbers{"collective_c7",
                              "All tensors are floats or, unless their mean is taken, int32."};
constexpr Constraint kElements{"collective_c8", "All tensors have elements."};
constexpr Constraint kTypes{
    "collective_c9",
    "An output has the element type of its input and, unless it is gathered or "
    "scattered, the shape."};
constexpr Constraint kParts{
    "collective_c10",
    "A reduce-scatter divides the elements of its inputs by the size of the group, an all-gather "
    "multiplies them by it, and the inputs of an all-to-all hold a multiple of it."};
constexpr Constraint kApart{
    "collective_c11",
    "Outputs share no bytes with other tensors of the instruction, but an all-reduce and a "
    "broadcast may replace an input."};

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
  return Broken(kParts, absl::StrCat("the ", op.name(), " over ", members,
                                     " replicas does not turn ", input, " elements into ", output));
}

absl::Status CheckRoot(const Collective& op, uint32_t members) {
  if (op.root < members) return absl::OkStatus();
  return Broken(kRoot, absl::StrCat("root ", op.root, " is not a position in a group of ", members,
                                    " replicas, must be 0 to ", members - 1));
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
    return Broken(kOperator, absl::StrCat("unknown reduce operator ", op.op));
  const v1::ReplicaGroup& group = *op.group;
  if (group.kind() < v1::ReplicaGroup::ALL || group.kind() > v1::ReplicaGroup::ORTHOGONAL)
    return Broken(kGroupKind, absl::StrCat("unknown kind of replica group ", group.kind()));
  const bool all = group.kind() == v1::ReplicaGroup::ALL;
  if (all != (group.size() == 0)) {
    return Broken(kGroupSize, all ? "a group of all replicas is given no size"
                                  : "a replica group needs a size of 1 or more");
  }
  if (!all) VPOD_RETURN_IF_ERROR(CheckRoot(op, group.size()));
  if (op.inputs->size() != op.outputs->size()) {
    return Broken(kCount,
                  absl::StrCat("the ", op.name(), " has ", op.inputs->size(), " inputs and ",
                               op.outputs->size(), " outputs, must have as many of both"));
  }
  return absl::OkStatus();
}

absl::Status CheckCollectiveTypes(const Collective& op, const TensorType& input,
                                  const TensorType& output) {
  const bool number = IsFloat(input.type) || input.type == v1::INT32;
  if (!number || (op.op == v1::MEAN && input.type == v1::INT32)) {
    return Broken(
        kNumbers,
        absl::StrCat("cannot ", op.op == v1::MEAN ? "take the mean of" : op.name(), " ",
                     input.ToString(),
                     op.op == v1::MEAN ? ", must be floats" : ", must be floats or int32"));
  }
  if (input.empty() || output.empty()) {
    return Broken(kElements, absl::StrCat("the ", op.name(), " of ", input.ToString(), " to ",
                                          output.ToString(), " moves no elements"));
  }
  const auto from = static_cast<uint64_t>(input.elements());
  const auto to = static_cast<uint64_t>(output.elements());
  const bool resizes = op.kind == Instruction::kReduceScatter || op.kind == Instruction::kAllGather;
  if (input.type != output.type || (!resizes && input.dims != output.dims)) {
    return Broken(kTypes, absl::StrCat("the ", op.name(), " of ", input.ToString(), " is not ",
                                       output.ToString()));
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
  VPOD_RETURN_IF_ERROR(CheckRoot(op, members));
  const auto elements = [&](uint32_t tensor) {
    return static_cast<uint64_t>(TypeOf(ipu.tensors(static_cast<int>(tensor))).elements());
  };
  for (int i = 0; i < op.inputs->size(); ++i) {
    VPOD_RETURN_IF_ERROR(
        CheckElements(op, elements(op.inputs->Get(i)), elements(op.outputs->Get(i)), members));
  }
  return absl::OkStatus();
}

template <class Sharded>
absl::Status CheckShards(const Sharded& sharded, uint32_t total_replicas) {
  if (sharded.shards() <= 1 || total_replicas % sharded.shards() == 0) return absl::OkStatus();
  return Invalid(absl::StrCat("'", sharded.name(), "' has ", sharded.shards(), " parts, which the ",
                              total_replicas, " replicas of the job cannot share out evenly"));
}

}  // namespace

absl::Status CheckTotalReplicas(const v1::Executable& executable, uint32_t total_replicas) {
  const uint32_t compiled_for = executable.total_replicas();
  if (compiled_for == 0 || compiled_for == total_replicas) return absl::OkStatus();
  return Invalid(absl::StrCat("the executable is for ", compiled_for,
                              compiled_for == 1 ? " replica" : " replicas", ", and the job has ",
                              total_replicas, ": compile it with total_replicas=", total_replicas));
}

absl::Status CheckReplicas(const v1::Executable& executable, uint32_t total_replicas) {
  VPOD_RETURN_IF_ERROR(CheckTotalReplicas(executable, total_replicas));
  for (const v1::Variable& variable : executable.variables())
    VPOD_RETURN_IF_ERROR(CheckShards(variable, total_replicas));
  for (const v1::Ipu& ipu : executable.ipus()) {
    for (const v1::RemoteBuffer& buffer : ipu.remote_buffers())
      VPOD_RETURN_IF_ERROR(CheckShards(buffer, total_replicas));
  }
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
  return Broken(kApart, absl::StrCat("an output of the ", op.name(),
                                     " shares bytes with another of its tensors"));
}

absl::Status CheckStep(const Instruction& instruction, const Operands& tensors) {
  const Collective op = *CollectiveOf(instruction);
  VPOD_RETURN_IF_ERROR(CheckCollective(op));
  for (int i = 0; i < op.inputs->size(); ++i) {
    const uint32_t index = op.inputs->Get(i);
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* input, tensors.Any(index));
    if (!op.reduces()) VPOD_RETURN_IF_ERROR(Labelled(kWide, tensors.Plain(index).status()));
    const uint32_t result = op.outputs->Get(i);
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* output, tensors.Any(result));
    const bool stays_wide = op.kind == Instruction::kReduceScatter && input->wide_accumulator();
    if (!stays_wide) VPOD_RETURN_IF_ERROR(Labelled(kWide, tensors.Plain(result).status()));
    VPOD_RETURN_IF_ERROR(CheckCollectiveTypes(op, TypeOf(*input), TypeOf(*output)));
  }
  return CheckDisjoint(op, tensors);
}

}  // namespace

std::vector<OpDef> CollectiveOps() {
  const auto op = [](OpKind kind, std::vector<Constraint> constraints) -> OpDef {
    return {.kind = kind,
            .role = Role::kCollective,
            .inputs = {1, kAnyNumber},
            .outputs = {1, kAnyNumber},
            .check = CheckStep,
            .constraints = std::move(constraints)};
  };
  return {
      op(Instruction::kAllReduce,
         {kOperator, kGroupKind, kGroupSize, kCount, kWide, kNumbers, kElements, kTypes, kApart}),
      op(Instruction::kReduceScatter, {kOperator, kGroupKind, kGroupSize, kCount, kWide, kNumbers,
                                       kElements, kTypes, kParts, kApart}),
      op(Instruction::kAllGather,
         {kGroupKind, kGroupSize, kCount, kWide, kNumbers, kElements, kTypes, kParts, kApart}),
      op(Instruction::kAllToAll,
         {kGroupKind, kGroupSize, kCount, kWide, kNumbers, kElements, kTypes, kParts, kApart}),
      op(Instruction::kBroadcast,
         {kGroupKind, kGroupSize, kRoot, kCount, kWide, kNumbers, kElements, kTypes, kApart}),
  };
}

}  // namespace vpod::program
