// Names for instructions in messages: what they were compiled from. The table is beside the
// executable (program.proto: Origins), because it must not change the executable's hash.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// Longest text of an origin, or name of an option; longer ones are refused.
inline constexpr size_t kMostOriginBytes = 512;
// Most names of options for memory, and the longest advice.
inline constexpr int kMostMemoryOptions = 64;
inline constexpr size_t kMostAdviceBytes = 16384;

// The kind of an instruction in a word: "convolution", or the operator of an element-by-element op
// or a reduction, "relu".
std::string LabelOf(const v1::Instruction& instruction);

// "relu 'layer1.0'", "convolution 'conv1' (backward)", or "add 'layer1.0' (map)" if the instruction
// does something else than its origin's name says. Without an origin only what it does.
std::string NameOf(const v1::Instruction& instruction, const v1::Origin* origin);
// A value by the instruction that makes it: "convolution 'conv1'", or "gradient
// accumulator 'conv1.weight'".
std::string NameOfValue(const v1::Tensor& tensor, const v1::Instruction& maker,
                        const v1::Origin* origin);
// The same of the operation itself.
std::string NameOf(const v1::Origin& origin);

// The operation of the instructions by which the stages of a pipeline count micro-batches.
inline constexpr char kCounterOp[] = "counter";
// The phase of an instruction; none of those counters, or if the origin is unknown.
std::optional<v1::Origin::Phase> PhaseOf(const v1::Origin* origin);

// InvalidArgument unless the table is empty or has a place for each instruction, refers to origins
// that it has, with known phases and short texts that can be shown on one line, as names of options
// can be, of which there are few.
absl::Status CheckOrigins(const v1::Origins& origins, const v1::Executable& executable);

}  // namespace vpod::program
