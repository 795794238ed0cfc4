#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/op.h"
#include "device/program/rendezvous.h"
#include "device/program/validate_host.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

absl::Status ValidateTensors(const v1::Ipu& ipu, const Limits& limits) {
  if (ipu.arena_bytes() > limits.arena_bytes) {
    return Invalid(
        absl::StrCat("arena of ", ipu.arena_bytes(), " bytes exceeds ", limits.arena_bytes));
  }
  if (static_cast<uint32_t>(ipu.tensors_size()) > limits.tensors) {
    return Invalid(absl::StrCat("more than ", limits.tensors, " tensors"));
  }
  for (int i = 0; i < ipu.tensors_size(); ++i) {
    const v1::Tensor& tensor = ipu.tensors(i);
    const absl::Status status = Check(TypeOf(tensor));
    if (!status.ok()) return Invalid(absl::StrCat("tensor ", i, ": ", status.message()));
    const absl::Status strides = CheckStrides(tensor);
    if (!strides.ok()) return Invalid(absl::StrCat("tensor ", i, ": ", strides.message()));
    if (tensor.wide_accumulator() && (tensor.type() != v1::FLOAT32 || tensor.strides_size() > 0)) {
      return Invalid(
          absl::StrCat("tensor ", i, ": a wide accumulator must be float32 and row-major"));
    }
    const uint64_t alignment = tensor.wide_accumulator() ? 64 : SizeOf(tensor.type());
    if (tensor.offset() % alignment != 0) {
      return Invalid(absl::StrCat("tensor ", i, " at offset ", tensor.offset(),
                                  " must be at a multiple of ", alignment, " bytes"));
    }
    if (tensor.offset() > ipu.arena_bytes() ||
        ArenaBytes(tensor) > ipu.arena_bytes() - tensor.offset()) {
      return Invalid(absl::StrCat("tensor ", i, " at offset ", tensor.offset(), " with ",
                                  ArenaBytes(tensor), " bytes does not fit the arena of ",
                                  ipu.arena_bytes(), " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateMoves(const v1::Executable& executable, const v1::Exchange& exchange) {
  if (exchange.moves().empty()) return Invalid(" has no moves");
  const uint32_t ipus = executable.ipus_per_replica();
  std::map<uint32_t, std::vector<ArenaRange>> ranges;  // by IPU
  std::map<uint32_t, std::set<uint32_t>> sent;         // a tensor may go to several IPUs
  const auto find = [&](uint32_t ipu, uint32_t index) -> absl::StatusOr<const v1::Tensor*> {
    const auto& tensors = executable.ipus(static_cast<int>(ipu)).tensors();
    const auto name = absl::StrCat(": tensor ", index, " of IPU ", ipu);
    if (index >= static_cast<uint32_t>(tensors.size()))
      return Invalid(absl::StrCat(name, " does not exist"));
    if (tensors[static_cast<int>(index)].wide_accumulator())
      return Invalid(absl::StrCat(name, " is a wide accumulator"));
    if (tensors[static_cast<int>(index)].strides_size() > 0)
      return Invalid(absl::StrCat(name, " is not row-major"));
    if (TypeOf(tensors[static_cast<int>(index)]).empty())
      return Invalid(absl::StrCat(name, " has no elements"));
    return &tensors[static_cast<int>(index)];
  };
  for (const v1::Move& move : exchange.moves()) {
    if (move.from_ipu() >= ipus || move.to_ipu() >= ipus || move.from_ipu() == move.to_ipu())
      return Invalid(": a move needs two different IPUs of the replica");
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* from, find(move.from_ipu(), move.from_tensor()));
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* to, find(move.to_ipu(), move.to_tensor()));
    if (TypeOf(*from) != TypeOf(*to)) {
      return Invalid(
          absl::StrCat(" moves ", TypeOf(*from).ToString(), " to ", TypeOf(*to).ToString()));
    }
    if (sent[move.from_ipu()].insert(move.from_tensor()).second)
      ranges[move.from_ipu()].push_back(RangeOf(*from, /*output=*/false));
    ranges[move.to_ipu()].push_back(RangeOf(*to, /*output=*/true));
  }
  for (auto& [ipu, of_ipu] : ranges) {
    if (!OutputsLieApart(std::move(of_ipu))) {
      return Invalid(absl::StrCat(": a tensor that IPU ", ipu,
                                  " receives shares bytes with another of the exchange"));
    }
  }
  return absl::OkStatus();
}

// Work that an instruction makes wherever programs are looked through.
uint64_t WeightOf(const v1::Instruction& instruction, const v1::Executable& executable) {
  if (!instruction.has_exchange()) return 1;
  const int exchange = static_cast<int>(instruction.exchange().exchange());
  return static_cast<uint64_t>(executable.exchanges(exchange).moves_size());
}

// Properties of a function that matter to its callers.
struct Summary {
  uint64_t executed = 0;  // instructions, rounds multiplied, at most one more than the limit
  int depth = 0;          // of calls below it
  bool communicates = false;
};

// Checks the functions of an IPU, in their order: what a function calls has been checked.
class FunctionValidator {
 public:
  FunctionValidator(const v1::Executable& executable, uint32_t ipu, const Limits& limits)
      : ipu_(executable.ipus(static_cast<int>(ipu))),
        operands_(executable, ipu, limits),
        limits_(limits) {}

  absl::Status CheckAll() {
    if (static_cast<uint32_t>(ipu_.functions_size()) > limits_.instructions)
      return Invalid(absl::StrCat(": more than ", limits_.instructions, " functions"));
    for (int f = 0; f < ipu_.functions_size(); ++f) {
      Summary summary;
      for (int i = 0; i < ipu_.functions(f).instructions_size(); ++i) {
        const v1::Instruction& instruction = ipu_.functions(f).instructions(i);
        const absl::Status status = CheckOne(instruction, summary);
        if (status.ok()) continue;
        const bool known = FindOp(instruction.attributes_case()) != nullptr;
        return Invalid(absl::StrCat(
            " function ", f, " instruction ", i,
            known ? absl::StrCat(" (", OpName(instruction.attributes_case()), ")") : "", ": ",
            status.message()));
      }
      summaries_.push_back(summary);
    }
    return absl::OkStatus();
  }

  const std::vector<Summary>& summaries() const { return summaries_; }

 private:
  absl::Status CheckOne(const v1::Instruction& instruction, Summary& summary) {
    VPOD_RETURN_IF_ERROR(CountOperands(instruction));
    VPOD_RETURN_IF_ERROR(CheckInstruction(instruction, operands_));
    written_ += WeightOf(instruction, operands_.executable());
    if (written_ > limits_.instructions)
      return Invalid(absl::StrCat("more than ", limits_.instructions, " instructions"));
    const Role role = FindOp(instruction.attributes_case())->role;
    summary.communicates |= role != Role::kKernel && role != Role::kControl;
    uint64_t executed = 1;
    absl::Status status;
    ForEachCall(instruction, [&](uint32_t callee, uint64_t rounds) {
      if (status.ok()) status = CheckCall(instruction, callee, rounds, summary, executed);
    });
    summary.executed = std::min(summary.executed + executed, most());
    return status;
  }

  // Before anything is done for each of them.
  absl::Status CountOperands(const v1::Instruction& instruction) {
    const uint64_t operands =
        static_cast<uint64_t>(instruction.inputs_size()) + instruction.outputs_size();
    if (operands > limits_.operands_per_instruction) {
      return Invalid(absl::StrCat("the instruction has ", operands, " operands, at most ",
                                  limits_.operands_per_instruction, " are accepted"));
    }
    num_operands_ += operands;
    if (num_operands_ <= limits_.operands) return absl::OkStatus();
    return Invalid(
        absl::StrCat("the instructions have more than ", limits_.operands, " operands in all"));
  }

  absl::Status CheckCall(const v1::Instruction& instruction, uint32_t callee, uint64_t rounds,
                         Summary& summary, uint64_t& executed) const {
    if (callee >= summaries_.size()) {
      return Invalid(absl::StrCat("function ", callee,
                                  " is not before its caller; functions call only those before "
                                  "them"));
    }
    const Summary& called = summaries_[callee];
    // Empty rounds take time and would be in no count.
    if (called.executed == 0 && (instruction.has_repeat() || instruction.has_while_()))
      return Invalid(absl::StrCat("function ", callee, ", which is repeated, does nothing"));
    if (called.communicates && (instruction.has_if_() || instruction.has_while_())) {
      return Invalid(
          absl::StrCat("function ", callee,
                       " streams or communicates, which the functions of an if or while do not"));
    }
    summary.depth = std::max(summary.depth, called.depth + 1);
    if (summary.depth > limits_.nesting)
      return Invalid(absl::StrCat("calls are nested deeper than ", limits_.nesting));
    summary.communicates |= called.communicates;
    executed = called.executed > most() / rounds
                   ? most()
                   : std::min(executed + called.executed * rounds, most());
    return absl::OkStatus();
  }

  uint64_t most() const { return limits_.executed_instructions + 1; }

  const v1::Ipu& ipu_;
  const Operands operands_;
  const Limits& limits_;
  uint64_t written_ = 0, num_operands_ = 0;  // so far
  std::vector<Summary> summaries_;           // of the functions so far
};

// Counts that all programs share a limit of.
struct Totals {
  uint64_t reached = 0;  // instructions
  uint64_t rendezvous = 0;
};

absl::Status ValidateProgram(const v1::Executable& executable, const v1::Program& program,
                             const std::vector<std::vector<Summary>>& summaries,
                             const RendezvousChecker& rendezvous, const Limits& limits,
                             Totals& totals) {
  for (int ipu = 0; ipu < program.functions_size(); ++ipu) {
    const std::vector<Summary>& functions = summaries[static_cast<size_t>(ipu)];
    const uint32_t entry = program.functions(ipu);
    if (entry >= functions.size()) {
      return Invalid(absl::StrCat(" IPU ", ipu, ": function ", entry, " does not exist (there are ",
                                  functions.size(), ")"));
    }
    if (functions[entry].executed > limits.executed_instructions) {
      return Invalid(absl::StrCat(" IPU ", ipu, ": more than ", limits.executed_instructions,
                                  " executed instructions"));
    }
    totals.reached += entry;                 // functions that are looked at
    std::map<uint32_t, uint64_t> transfers;  // by stream
    ForEachInstruction(executable.ipus(ipu), entry,
                       [&](const v1::Instruction& instruction, uint64_t times) {
                         totals.reached += WeightOf(instruction, executable);
                         if (const auto stream = StreamOf(instruction)) transfers[*stream] += times;
                       });
    if (totals.reached > limits.reached_instructions) {
      return Invalid(absl::StrCat(": the programs reach more than ", limits.reached_instructions,
                                  " instructions in all"));
    }
    for (const auto& [index, times] : transfers) {
      const v1::Stream& stream = executable.streams(static_cast<int>(index));
      if (times > stream.transfers_per_run()) {
        return Invalid(absl::StrCat(" makes ", times, " transfers of stream '", stream.name(),
                                    "', which declares ", stream.transfers_per_run()));
      }
    }
  }
  const absl::Status status = rendezvous.Check(program, limits, totals.rendezvous);
  return status.ok() ? status : Invalid(absl::StrCat(": ", status.message()));
}

}  // namespace

absl::Status Validate(const v1::Executable& executable, const Limits& limits) {
  const uint32_t ipus = executable.ipus_per_replica();
  if (!arch::IsPowerOfTwo(ipus) || ipus > arch::kMaxIpusPerReplica) {
    return Invalid(absl::StrCat("ipus_per_replica is ", ipus, ", must be a power of two from 1 to ",
                                arch::kMaxIpusPerReplica));
  }
  if (static_cast<uint32_t>(executable.ipus_size()) != ipus) {
    return Invalid(absl::StrCat(executable.ipus_size(), " IPUs described, ", ipus, " expected"));
  }
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    const absl::Status status = ValidateTensors(executable.ipus(ipu), limits);
    if (!status.ok()) return Invalid(absl::StrCat("IPU ", ipu, ": ", status.message()));
  }
  VPOD_RETURN_IF_ERROR(ValidateStreams(executable, limits));
  VPOD_RETURN_IF_ERROR(ValidateState(executable, limits));
  if (static_cast<uint32_t>(executable.exchanges_size()) > limits.exchanges)
    return Invalid(absl::StrCat("more than ", limits.exchanges, " exchanges"));
  for (int i = 0; i < executable.exchanges_size(); ++i) {
    const absl::Status status = ValidateMoves(executable, executable.exchanges(i));
    if (!status.ok()) return Invalid(absl::StrCat("exchange ", i, status.message()));
  }
  std::vector<std::vector<Summary>> summaries;
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    FunctionValidator validator(executable, ipu, limits);
    const absl::Status status = validator.CheckAll();
    if (!status.ok()) return Invalid(absl::StrCat("IPU ", ipu, status.message()));
    summaries.push_back(validator.summaries());
  }
  if (executable.programs().empty()) return Invalid("the executable has no program");
  if (static_cast<uint32_t>(executable.programs_size()) > limits.programs) {
    return Invalid(absl::StrCat("the executable has ", executable.programs_size(),
                                " programs, at most ", limits.programs, " are accepted"));
  }
  const RendezvousChecker rendezvous(executable);
  Totals totals;
  std::set<std::string> names;
  for (const v1::Program& program : executable.programs()) {
    if (program.name().empty()) return Invalid("a program has no name");
    if (!names.insert(program.name()).second)
      return Invalid(absl::StrCat("two programs are called '", program.name(), "'"));
    if (static_cast<uint32_t>(program.functions_size()) != ipus) {
      return Invalid(absl::StrCat("program '", program.name(), "' has ", program.functions_size(),
                                  " functions, needs one for each of the ", ipus, " IPUs"));
    }
    const absl::Status status =
        ValidateProgram(executable, program, summaries, rendezvous, limits, totals);
    if (!status.ok())
      return Invalid(absl::StrCat("program '", program.name(), "'", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
