#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/op.h"
#include "device/program/rendezvous.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// Checks instructions of one IPU against its tensor table.
class BlockValidator {
 public:
  BlockValidator(const v1::Executable& executable, uint32_t ipu, const Limits& limits)
      : tensors_(executable, ipu, limits), limits_(limits) {}

  absl::Status CheckAll(const google::protobuf::RepeatedPtrField<v1::Instruction>& instructions,
                        uint64_t times, int depth) {
    if (depth > limits_.nesting) {
      return Invalid(absl::StrCat("repeats are nested deeper than ", limits_.nesting));
    }
    for (int i = 0; i < instructions.size(); ++i) {
      const absl::Status status = CheckOne(instructions[i], times, depth);
      if (!status.ok()) {
        return Invalid(absl::StrCat(depth == 0 ? "instruction " : "", i, depth == 0 ? ": " : "/",
                                    status.message()));
      }
    }
    return absl::OkStatus();
  }

  // Transfers of each stream in one run.
  const std::map<uint32_t, uint64_t>& transfers() const { return transfers_; }

 private:
  absl::Status CheckOne(const v1::Instruction& instruction, uint64_t times, int depth) {
    written_ += 1;
    executed_ += times;
    if (written_ > limits_.instructions) {
      return Invalid(absl::StrCat("more than ", limits_.instructions, " instructions"));
    }
    if (executed_ > limits_.executed_instructions) {
      return Invalid(
          absl::StrCat("more than ", limits_.executed_instructions, " executed instructions"));
    }
    const OpDef* op = FindOp(instruction.step_case());
    if (op == nullptr) return Invalid("unknown instruction");
    VPOD_RETURN_IF_ERROR(op->check(instruction, tensors_));
    if (instruction.has_stream_in()) transfers_[instruction.stream_in().stream()] += times;
    if (instruction.has_stream_out()) transfers_[instruction.stream_out().stream()] += times;
    if (!instruction.has_repeat()) return absl::OkStatus();
    const v1::Repeat& repeat = instruction.repeat();
    if (times > limits_.executed_instructions / repeat.count()) {
      return Invalid(absl::StrCat("repeats multiply to more than ", limits_.executed_instructions));
    }
    return CheckAll(repeat.body(), times * repeat.count(), depth + 1);
  }

  const Operands tensors_;
  const Limits& limits_;
  uint64_t written_ = 0;
  uint64_t executed_ = 0;
  std::map<uint32_t, uint64_t> transfers_;
};

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
    if (tensor.wide_accumulator() && tensor.type() != v1::FLOAT32) {
      return Invalid(absl::StrCat("tensor ", i, ": a wide accumulator must be float32"));
    }
    if (tensor.offset() % 64 != 0 || tensor.offset() > ipu.arena_bytes() ||
        ArenaBytes(tensor) > ipu.arena_bytes() - tensor.offset()) {
      return Invalid(absl::StrCat("tensor ", i, " at offset ", tensor.offset(), " with ",
                                  ArenaBytes(tensor), " bytes does not fit the arena of ",
                                  ipu.arena_bytes(), " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateStreamsAndVariables(const v1::Executable& executable, const Limits& limits) {
  std::set<std::string> names;
  uint64_t bytes = 0;
  for (const v1::Stream& stream : executable.streams()) {
    const TensorType type = TypeOf(stream);
    const absl::Status status = Check(type);
    if (!status.ok() || stream.ipu() >= executable.ipus_per_replica() || stream.name().empty() ||
        !names.insert(stream.name()).second) {
      return Invalid(absl::StrCat("stream '", stream.name(), "': bad name, IPU or shape"));
    }
    if (stream.tiles() > arch::kTilesPerIpu) {
      return Invalid(absl::StrCat("stream '", stream.name(), "' takes ", stream.tiles(),
                                  " tiles, an IPU has ", arch::kTilesPerIpu));
    }
    const uint64_t transfers = stream.transfers_per_run();
    if (transfers > 0 && type.bytes() <= limits.stream_bytes / transfers) {
      bytes += type.bytes() * transfers;
    } else if (transfers > 0) {
      bytes = limits.stream_bytes + 1;
    }
    if (bytes > limits.stream_bytes) {
      return Invalid(absl::StrCat("streams of one run exceed ", limits.stream_bytes, " bytes"));
    }
  }
  names.clear();
  for (const v1::Variable& variable : executable.variables()) {
    if (variable.ipu() >= executable.ipus_per_replica() || variable.name().empty() ||
        !names.insert(variable.name()).second ||
        variable.tensor() >=
            static_cast<uint32_t>(executable.ipus(variable.ipu()).tensors_size()) ||
        executable.ipus(variable.ipu()).tensors(variable.tensor()).wide_accumulator()) {
      return Invalid(absl::StrCat("variable '", variable.name(), "': bad name, IPU or tensor"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const v1::Executable& executable, const Limits& limits) {
  const uint32_t ipus = executable.ipus_per_replica();
  if (ipus != 1 && ipus != 2 && ipus != 4 && ipus != 8 && ipus != 16) {
    return Invalid(absl::StrCat("ipus_per_replica is ", ipus, ", must be 1, 2, 4, 8 or 16"));
  }
  if (static_cast<uint32_t>(executable.ipus_size()) != ipus) {
    return Invalid(absl::StrCat(executable.ipus_size(), " IPUs described, ", ipus, " expected"));
  }
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    const absl::Status status = ValidateTensors(executable.ipus(ipu), limits);
    if (!status.ok()) return Invalid(absl::StrCat("IPU ", ipu, ": ", status.message()));
  }
  VPOD_RETURN_IF_ERROR(ValidateStreamsAndVariables(executable, limits));
  if (executable.programs().empty()) return Invalid("the executable has no program");
  if (static_cast<uint32_t>(executable.programs_size()) > limits.programs) {
    return Invalid(absl::StrCat("the executable has ", executable.programs_size(),
                                " programs, at most ", limits.programs, " are accepted"));
  }
  uint64_t rendezvous = 0;
  std::set<std::string> names;
  for (const v1::Program& program : executable.programs()) {
    if (program.name().empty() || !names.insert(program.name()).second ||
        static_cast<uint32_t>(program.blocks_size()) != ipus) {
      return Invalid(absl::StrCat("program '", program.name(), "': bad name or number of blocks"));
    }
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      BlockValidator validator(executable, ipu, limits);
      const absl::Status status = validator.CheckAll(program.blocks(ipu).instructions(), 1, 0);
      if (!status.ok()) {
        return Invalid(
            absl::StrCat("program '", program.name(), "' IPU ", ipu, " ", status.message()));
      }
      for (const auto& [stream, transfers] : validator.transfers()) {
        if (transfers > executable.streams(stream).transfers_per_run()) {
          return Invalid(absl::StrCat("program '", program.name(), "' makes ", transfers,
                                      " transfers of stream '", executable.streams(stream).name(),
                                      "', which declares ",
                                      executable.streams(stream).transfers_per_run()));
        }
      }
    }
    const absl::Status status = ValidateRendezvous(executable, program, limits, rendezvous);
    if (!status.ok())
      return Invalid(absl::StrCat("program '", program.name(), "': ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
