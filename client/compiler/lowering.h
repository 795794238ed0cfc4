// Lowers one program of a graph to instruction lists, one an IPU, whose tensors are named by
// (value, IPU) before memory is planned.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/compiler/graph_program.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

// Parts of a program, in order of execution. Setup runs once a run, Body once a micro-batch, the
// others once a weight update: Reduce combines the replicas' gradients, Update changes the weights,
// unless the gradients are bad, and Finish prepares the next update. End runs once a run, too.
enum class Section { kSetup, kClear, kBody, kReduce, kUpdate, kFinish, kEnd };
inline constexpr int kNumSections = 7;

// A tensor of an IPU before it has a place.
struct LoweredTensor {
  graph::TensorType type;
  bool wide_accumulator = false;
  // Persistent tensors keep their value between runs and are known by name; others live within a
  // run.
  std::string variable;
  // Tensors of the same storage share its bytes (reshapes and views).
  uint32_t storage = 0;
  uint64_t offset = 0;    // of the first element, in bytes of the storage
  program::Dims strides;  // in elements, one for each dimension
  // A variable that replicas share out among them, of which this is one part: the number of parts,
  // and the whole as the host sees it.
  struct Shards {
    uint32_t count = 1;
    program::Dims dims, strides;
  };
  Shards shards;
};

// The tensor as an executable describes it, at a place in the arena.
program::v1::Tensor Describe(const LoweredTensor& tensor, uint64_t offset);

// An instruction, and what of the model it belongs to.
struct LoweredStep {
  program::v1::Instruction instruction;
  program::v1::Origin origin;
};

// Instructions of one IPU; their operands are indices into `tensors`.
struct LoweredIpu {
  std::vector<LoweredTensor> tensors;
  uint32_t num_storages = 0;
  std::vector<LoweredStep> sections[kNumSections];
  std::vector<program::v1::RemoteBuffer> remote_buffers;  // RemoteLoad … refer to these by index
  // A BOOL scalar without which Update is left out, if there is one.
  std::optional<uint32_t> update_condition;
  // In the place of the body of a pipeline: what each cycle begins with, and the steps of each
  // position. Pinned storages keep their bytes from one micro-batch to the next.
  std::vector<LoweredStep> cycle;
  std::vector<std::vector<LoweredStep>> positions;
  std::set<uint32_t> pinned;
};

// A stream as this program uses it.
struct LoweredStream {
  std::string name;
  bool to_device = true;
  uint32_t ipu = 0;
  graph::TensorType type;
  bool periodic = false;  // to the host: only in each output_period-th device iteration
};

// A move of a pipeline, at the end of the ticks of a position.
struct PipelineMove {
  program::v1::Move move;
  uint32_t position = 0;
};

// How positions follow each other (pipeline.h). Programs without a pipeline have a period of 0.
struct PipelineShape {
  uint32_t period = 0, positions = 0;
  std::vector<PipelineMove> moves;

  // Cycles between the first and the last position's work on a micro-batch.
  uint32_t Ramp() const { return period == 0 ? 0 : (positions - 1) / period; }
};

struct LoweredProgram {
  std::string name;
  uint32_t device_iterations = 1, accumulation = 1;
  uint32_t output_period = 1;  // of the periodic streams
  std::vector<LoweredIpu> ipus;
  std::vector<LoweredStream> streams;    // StreamIn and StreamOut refer to these by index
  std::vector<program::v1::Move> moves;  // ExchangeStep refers to these by index: one each
  PipelineShape pipeline;

  // Micro-batches of an update, or of a whole run if a pipeline does not accumulate.
  uint32_t micro_batches() const {
    return pipeline.period > 0 && accumulation == 1 ? device_iterations : accumulation;
  }
};

LoweredProgram Lower(const GraphProgram& program);

// The tensors of an instruction and what its rounding reads.
std::vector<uint32_t> TensorsOf(const program::v1::Instruction& instruction);

}  // namespace vpod::compiler
