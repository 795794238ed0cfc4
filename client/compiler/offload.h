// Values in streaming memory: activations, stored when the forward part of a program has made them
// and loaded when its backward part needs them, and weights and accumulators, loaded for each part
// that uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "client/compiler/graph_program.h"
#include "client/compiler/lowering.h"

namespace vpod::compiler {

// For programs without a pipeline, whose bodies hold both parts; stash.h does it for pipelines.
void OffloadActivations(LoweredProgram& program);

// The trainable variables of the graph become remote buffers. Forward part, backward part, update
// and the positions of a pipeline load what they use, and store what they have changed.
void OffloadWeights(const GraphProgram& source, LoweredProgram& program);

// So do accumulators, with remote buffers that only the program uses.
void OffloadAccumulators(LoweredProgram& program);

// The bytes of a storage as a row of a ring of places or of a remote buffer: [1, n].
program::TensorType RowOf(const LoweredIpu& ipu, uint32_t storage);

// Whether a value is worth a remote buffer; whether it may be a row of one, too.
bool IsLarge(const program::TensorType& type);
bool BelongsOffChip(const program::TensorType& row);

// The equal rows of a remote buffer that hold the elements of a value: 1, or as many as the limit
// of a transfer needs. 0 if it cannot be cut into such rows.
uint32_t RowsFor(const program::TensorType& type);

// Adds a remote buffer that only the program itself uses; its number.
uint32_t AddScratchBuffer(const LoweredProgram& program, const program::TensorType& row,
                          uint32_t rows, LoweredIpu& ipu);

// Steps between such a buffer and a tensor of its row's type; `row` is an INT32 scalar.
program::v1::Instruction StoreRow(uint32_t buffer, uint32_t tensor, uint32_t row);
program::v1::Instruction LoadRow(uint32_t buffer, uint32_t tensor, uint32_t row);

// Adds a row-major tensor; an INT32 scalar that is the number of a row in all of a run.
uint32_t AddRowMajor(LoweredTensor tensor, LoweredIpu& ipu);
uint32_t AddRowNumber(uint32_t row, LoweredIpu& ipu);

// The first step of the backward part of a body, or of what is computed again for it.
size_t FirstOfBackward(const std::vector<LoweredStep>& body);

// Lets steps use other storages.
class Renaming {
 public:
  Renaming(LoweredProgram& program, LoweredIpu& ipu) : program_(program), ipu_(ipu) {}
  void Apply(const std::map<uint32_t, uint32_t>& storages, LoweredStep& step);
  // The tensor that a step uses in the place of one.
  uint32_t Renamed(const std::map<uint32_t, uint32_t>& storages, uint32_t tensor);

 private:
  LoweredProgram& program_;
  LoweredIpu& ipu_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> clones_;  // of (tensor, storage)
};

}  // namespace vpod::compiler
