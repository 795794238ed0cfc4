// An executable that has passed validation. Bytes from the wire are untrusted: the code that takes
// this type relies on checked shapes, types, places in memory, nesting and sizes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// The largest executables that a machine accepts. An error names the limit that is exceeded.
struct Limits {
  uint64_t executable_bytes = 64ull << 20;
  uint64_t arena_bytes = 2ull << 30;  // per IPU: 897 MiB, wide accumulators counted double
  uint32_t tensors = 1 << 16;         // per IPU
  uint32_t programs = 1 << 10;
  uint32_t exchanges = 1 << 16;
  // Instructions of an IPU, each counted where it is written; a step of an exchange counts as all
  // of its moves. An IPU may have as many functions.
  uint32_t instructions = 1 << 18;
  uint32_t operands_per_instruction = 1 << 16;
  uint32_t operands = 1 << 20;                  // inputs and outputs of all instructions of an IPU
  uint64_t reached_instructions = 1 << 24;      // written in what each program reaches, in all
  uint64_t executed_instructions = 1ull << 32;  // per run and IPU, rounds multiplied
  uint64_t rendezvous = 1 << 24;  // between IPUs, in a run of each program, rounds multiplied
  uint64_t operations_per_instruction = 1ull << 44;  // some minutes to hours of all cores
  int nesting = 8;                                   // of calls
  uint64_t parsed_bytes = 256ull << 20;              // of host memory, once parsed
  uint64_t stream_bytes = 1ull << 30;                // per replica and slot
  uint32_t remote_buffers = 1 << 13;                 // per IPU
  uint64_t remote_bytes = 32ull << 30;               // per IPU: its share of streaming memory
  uint64_t origin_bytes = 16ull << 20;               // beside the executable
};

// A variable, or all rows of a remote buffer, which the host reads and writes by name in row-major
// order.
struct HostTensor {
  std::string name;
  uint32_t ipu = 0;  // of the replica
  TensorType type;
  bool remote = false;  // in the streaming memory of the IPU, not in its arena
  uint64_t offset = 0;  // of the first byte there
  Dims strides;         // of its elements there, dense in any order; empty: row-major
  // If `shards` is above 1, replicas share the tensor out among them: the fields above describe the
  // part of one replica (replica r of the job has part r mod `shards`), and `whole` and
  // `whole_strides` describe the whole tensor, whose parts lie one after the other.
  uint32_t shards = 1;
  TensorType whole;
  Dims whole_strides;

  uint64_t end() const { return offset + type.bytes(); }
  // The type that the host reads and writes: that of the whole tensor.
  const TensorType& host_type() const { return shards > 1 ? whole : type; }
};

// An immutable program that all replicas and threads share.
class Executable {
 public:
  // Parses and validates the bytes that Serialize has made, and the bytes of a v1::Origins, which
  // may be empty. InvalidArgument names the program, instruction and field. Blocks take more host
  // memory than ParsedSize; `reserve`, if it is given, is asked for that memory first.
  using Reserve = std::function<absl::Status(uint64_t bytes)>;
  static absl::StatusOr<std::shared_ptr<const Executable>> Parse(absl::string_view bytes,
                                                                 const Limits& limits = {},
                                                                 absl::string_view origins = {},
                                                                 const Reserve& reserve = nullptr);
  // Validates a text that this process has made. Fails as Parse does.
  static absl::StatusOr<std::shared_ptr<const Executable>> Make(v1::Executable text,
                                                                const Limits& limits = {},
                                                                v1::Origins origins = {});

  // Host memory that Parse will take for these bytes, which need not be an executable.
  // InvalidArgument when it is more than the limit.
  static absl::StatusOr<uint64_t> ParsedSize(absl::string_view bytes, const Limits& limits = {},
                                             absl::string_view origins = {});

  // The program without blocks: their instructions are in place of the calls.
  const v1::Executable& proto() const { return proto_; }
  // The program with its blocks, as it was made.
  const v1::Executable& source() const { return source_ ? *source_ : proto_; }
  // The bytes that Parse takes.
  std::string Bytes() const;
  std::string OriginBytes() const { return origins_.SerializeAsString(); }
  // The names of the front's options (program.proto: Origins.memory_options).
  std::vector<std::string> memory_options() const {
    return {origins_.memory_options().begin(), origins_.memory_options().end()};
  }
  // Advice that the compiler has tried (Origins.memory_advice); empty if there is none.
  const std::string& memory_advice() const { return origins_.memory_advice(); }
  // A copy with this advice.
  std::shared_ptr<const Executable> WithMemoryAdvice(std::string advice) const;
  // The origin of an instruction; null if that is unknown.
  const v1::Origin* OriginOf(uint32_t ipu, size_t function, size_t instruction) const;
  // SHA-256 of the canonical encoding.
  const std::string& hash() const { return hash_; }
  uint32_t ipus_per_replica() const { return proto_.ipus_per_replica(); }
  // The number of replicas of the jobs in which the program may run; 0: any number
  // (ops/collective.h: CheckReplicas).
  uint32_t total_replicas() const { return proto_.total_replicas(); }
  // The function that a program executes on an IPU.
  uint32_t EntryOf(uint32_t program, uint32_t ipu) const {
    return proto_.programs(static_cast<int>(program)).functions(static_cast<int>(ipu));
  }
  // Whether a program communicates between replicas.
  bool has_collectives(uint32_t program) const { return has_collectives_[program]; }
  // The streams that a program reads or writes.
  const std::set<uint32_t>& streams(uint32_t program) const { return streams_[program]; }
  // All variables, followed by all remote buffers.
  const std::vector<HostTensor>& host_tensors() const { return host_tensors_; }
  // NotFound lists the names that the executable has.
  absl::StatusOr<const HostTensor*> FindVariable(absl::string_view name) const;
  absl::StatusOr<uint32_t> FindProgram(absl::string_view name) const;
  absl::StatusOr<uint32_t> FindStream(absl::string_view name) const;

 private:
  // A text, valid when its blocks are written out.
  struct Texts {
    v1::Executable proto;
    std::optional<v1::Executable> source;  // if it has blocks
  };
  static absl::StatusOr<Texts> Check(v1::Executable text, const Limits& limits,
                                     const v1::Origins& origins, const Reserve& reserve);
  // `canonical` is the canonical encoding of the source.
  Executable(Texts texts, absl::string_view canonical, v1::Origins origins);

  v1::Executable proto_;
  std::optional<v1::Executable> source_;
  v1::Origins origins_;  // outside the hash
  std::string hash_;
  std::vector<HostTensor> host_tensors_;
  std::vector<bool> has_collectives_;
  std::vector<std::set<uint32_t>> streams_;  // by program
};

// How often a replica transfers a stream in a run of a program whose loops take all their rounds.
// The stream itself declares the largest such number of all programs.
uint64_t TransfersOf(const Executable& executable, uint32_t program, uint32_t stream);

// Magic, format version and canonical encoding.
std::string Serialize(const v1::Executable& executable);

// Bytes of a row in the emulator's streaming memory (8 an element of a wide accumulator).
uint64_t RowBytes(const v1::RemoteBuffer& buffer);
// The first byte of a remote buffer in the streaming memory of its IPU. Buffers begin at multiples
// of 64. If `buffer` is the number of buffers, the result is the size of all of them.
uint64_t RemoteOffset(const v1::Ipu& ipu, uint32_t buffer);
inline uint64_t RemoteBytes(const v1::Ipu& ipu) {
  return RemoteOffset(ipu, static_cast<uint32_t>(ipu.remote_buffers_size()));
}

// The stream that an instruction reads or writes.
std::optional<uint32_t> StreamOf(const v1::Instruction& instruction);

// Calls `visit` with a reference to the index of each tensor of an instruction: inputs, outputs,
// and the seed and counter of stochastic rounding.
template <class Visit>
void ForEachTensor(v1::Instruction& instruction, const Visit& visit) {
  for (uint32_t& index : *instruction.mutable_inputs()) visit(index);
  for (uint32_t& index : *instruction.mutable_outputs()) visit(index);
  if (!instruction.has_rounding()) return;
  v1::StochasticRounding& rounding = *instruction.mutable_rounding();
  uint32_t seed = rounding.seed(), counter = rounding.counter();
  visit(seed);
  visit(counter);
  rounding.set_seed(seed);
  rounding.set_counter(counter);
}

// Checks everything that Parse promises of an executable without blocks. The compiler's tests call
// it.
absl::Status Validate(const v1::Executable& executable, const Limits& limits);

// --- Functions of an IPU, which call only those before them ---

// Calls `visit(function, rounds)` for each function that an instruction may execute: an If has two,
// and a While takes as many rounds as it may.
template <class Visitor>
void ForEachCall(const v1::Instruction& instruction, const Visitor& visit) {
  if (instruction.has_call()) visit(instruction.call().function(), uint64_t{1});
  if (instruction.has_repeat())
    visit(instruction.repeat().function(), uint64_t{instruction.repeat().count()});
  if (instruction.if_().has_then_function()) visit(instruction.if_().then_function(), uint64_t{1});
  if (instruction.if_().has_else_function()) visit(instruction.if_().else_function(), uint64_t{1});
  if (instruction.has_while_())
    visit(instruction.while_().function(), uint64_t{instruction.while_().max_rounds()});
}

// Calls `visit(function, rounds)` for each function that an instruction executes in a planned run.
// Conditions hold there: an If executes its first side only, if it has one.
template <class Visitor>
void ForEachPlannedCall(const v1::Instruction& instruction, const Visitor& visit) {
  if (!instruction.has_if_()) return ForEachCall(instruction, visit);
  if (instruction.if_().has_then_function()) visit(instruction.if_().then_function(), uint64_t{1});
}

// How often each function executes, as ForEachCall counts, when `function` executes once; at most
// 2^64 - 1.
std::vector<uint64_t> Executions(const v1::Ipu& ipu, uint32_t function);
// How often each function executes in a planned run, as ForEachPlannedCall counts.
std::vector<uint64_t> PlannedExecutions(const v1::Ipu& ipu, uint32_t function);

// Calls `visit(instruction, times)` for every instruction of a function and of those that it calls:
// the function itself, then the others, the last ones first. `executions` is how often each is
// executed.
template <class Visitor>
void ForEachInstruction(const v1::Ipu& ipu, const std::vector<uint64_t>& executions,
                        const Visitor& visit) {
  for (size_t f = executions.size(); f-- > 0;) {
    if (executions[f] == 0) continue;
    for (const v1::Instruction& instruction : ipu.functions(static_cast<int>(f)).instructions())
      visit(instruction, executions[f]);
  }
}
template <class Visitor>
void ForEachInstruction(const v1::Ipu& ipu, uint32_t function, const Visitor& visit) {
  ForEachInstruction(ipu, Executions(ipu, function), visit);
}

}  // namespace vpod::program
