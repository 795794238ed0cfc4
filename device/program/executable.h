// An executable that passed validation. Data from the wire is untrusted, so code below this type
// sees only programs that were checked for shapes, types, places in memory, nesting and sizes.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// Bounds of what a machine accepts; each named in the error when exceeded.
struct Limits {
  uint64_t executable_bytes = 64ull << 20;
  uint64_t arena_bytes = 2ull << 30;  // per IPU: 897 MiB, wide accumulators counted double
  uint32_t tensors = 1 << 16;         // per IPU
  uint32_t programs = 1 << 10;
  uint32_t instructions = 1 << 18;              // per program and IPU, written out once
  uint64_t executed_instructions = 1ull << 32;  // per run and IPU, repeats multiplied
  uint64_t rendezvous = 1 << 24;  // between IPUs, in a run of each program, repeats multiplied
  uint64_t operations_per_instruction = 1ull << 40;  // a kernel cannot be interrupted
  int nesting = 8;                                   // of Repeat
  uint64_t parsed_bytes = 256ull << 20;              // of host memory, once parsed
  uint64_t stream_bytes = 1ull << 30;                // per replica and slot
};

// Immutable; shared by all replicas and threads.
class Executable {
 public:
  // Parses and validates the bytes of Serialize. InvalidArgument names the program, instruction and
  // field.
  static absl::StatusOr<std::shared_ptr<const Executable>> Parse(absl::string_view bytes,
                                                                 const Limits& limits = {});

  // Host memory that Parse will take for these bytes, which need not be an executable.
  // InvalidArgument when it is more than the limit.
  static absl::StatusOr<uint64_t> ParsedSize(absl::string_view bytes, const Limits& limits = {});

  const v1::Executable& proto() const { return proto_; }
  // SHA-256 of the canonical encoding.
  const std::string& hash() const { return hash_; }
  uint32_t ipus_per_replica() const { return proto_.ipus_per_replica(); }
  // Whether a program communicates between replicas.
  bool has_collectives(uint32_t program) const { return has_collectives_[program]; }
  // Streams that a program reads or writes.
  const std::set<uint32_t>& streams(uint32_t program) const { return streams_[program]; }
  // Index of a variable; NotFound lists the names there are.
  absl::StatusOr<const v1::Variable*> FindVariable(absl::string_view name) const;
  absl::StatusOr<uint32_t> FindProgram(absl::string_view name) const;
  absl::StatusOr<uint32_t> FindStream(absl::string_view name) const;
  const v1::Tensor& TensorOf(const v1::Variable& variable) const {
    return proto_.ipus(variable.ipu()).tensors(variable.tensor());
  }

 private:
  v1::Executable proto_;
  std::string hash_;
  std::vector<bool> has_collectives_;
  std::vector<std::set<uint32_t>> streams_;  // by program
};

// Magic, format version and canonical encoding.
std::string Serialize(const v1::Executable& executable);

// Checks everything Parse promises. Exposed for the compiler's tests.
absl::Status Validate(const v1::Executable& executable, const Limits& limits);

// Calls `visit` for every instruction, bodies of repeats included, with the number of times it
// executes in one run.
template <class Visitor>
void ForEachInstruction(const google::protobuf::RepeatedPtrField<v1::Instruction>& instructions,
                        uint64_t times, const Visitor& visit) {
  for (const v1::Instruction& instruction : instructions) {
    visit(instruction, times);
    if (instruction.has_repeat()) {
      ForEachInstruction(instruction.repeat().body(), times * instruction.repeat().count(), visit);
    }
  }
}

}  // namespace vpod::program
