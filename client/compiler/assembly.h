// The last pass: from the lowered programs of a graph to one executable with its origins.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/compiler/lowering.h"
#include "client/graph/origin_table.h"

namespace vpod::compiler {

// Puts lowered programs together: one tensor table and arena an IPU, shared variables first, the
// temporaries of all programs over each other behind them.
class Assembler {
 public:
  // For replicas of this many IPUs, as all programs have them, and jobs of `total_replicas`
  // (ReplicasOf).
  Assembler(uint32_t ipus, uint32_t total_replicas);

  // First, for each program: variables and remote buffers get their places, so that all programs
  // agree on them.
  void AddState(const LoweredProgram& program);
  // Then, for each program.
  void AddProgram(LoweredProgram program);
  program::v1::Executable Finish();
  // The origins of the instructions that Finish returns, with those of blocks written out, and the
  // names of the front's options (model::ListOf).
  program::v1::Origins Origins(const std::vector<std::string>& memory_options);

 private:
  class PipelineWriter;  // pipeline_assembly.cc

  // A function that is being made, and what its instructions belong to.
  struct NamedFunction {
    program::v1::Function function;
    program::v1::FunctionOrigins origins;

    program::v1::Instruction* Add(uint32_t origin) {
      origins.add_instructions(origin);
      return function.add_instructions();
    }
  };

  // The next variable begins a page of the host.
  void AlignArena(uint32_t ipu);
  uint32_t AddTensor(uint32_t ipu, const LoweredTensor& tensor, uint64_t offset);
  // Stream indices of the executable for the program's own.
  std::vector<uint32_t> MergeStreams(const LoweredProgram& program);
  // Indices of the executable for the program's own.
  std::vector<uint32_t> AddTensors(uint32_t ipu, LoweredIpu& lowered);
  // Whether a step sends to a periodic stream of the program that is being assembled.
  bool IsPeriodic(const LoweredStep& step) const;
  // Without steps for periodic streams unless `outputs`.
  void Append(const std::vector<LoweredStep>& from, NamedFunction& to, bool outputs = true);
  uint32_t AddFunction(uint32_t ipu, NamedFunction named);
  // `count` rounds of a body: a Repeat of a function, or the body itself.
  void AppendLoop(uint32_t ipu, uint32_t count, NamedFunction body, NamedFunction& to);
  // The cycles of a pipeline, of whose micro-batches each output_period-th sends to
  // the periodic streams; none does with a period of 0.
  void AppendPipeline(const LoweredProgram& program, uint32_t ipu, uint32_t output_period,
                      NamedFunction& to);
  // The steps of an update, or of a micro-batch of inference; `outputs` as for Append.
  NamedFunction IterationOf(LoweredProgram& program, uint32_t ipu, bool outputs);
  // The exchange of a pipeline's moves with these numbers, in the executable's table.
  uint32_t ExchangeOf(const std::vector<uint32_t>& moves);
  // Adds the functions of a program on an IPU, inner ones first; the entry.
  uint32_t EmitFunctions(LoweredProgram& program, uint32_t ipu);

  static constexpr uint32_t kUnknown = 0;  // origin

  program::v1::Executable executable_;
  graph::OriginTable table_;
  program::v1::Origins origins_;                                 // refers to the table
  std::vector<std::map<std::string, uint32_t>> variables_;       // [ipu] name -> tensor
  std::vector<std::map<std::string, uint32_t>> remote_buffers_;  // [ipu] name -> index
  std::map<uint32_t, uint64_t> ends_;
  std::set<uint32_t> periodic_;  // streams of the executable that the program sends to periodically
  // The moves of the pipeline that is being assembled, and the exchange of each set of them.
  std::vector<program::v1::Move> pipeline_moves_;
  std::map<std::vector<uint32_t>, uint32_t> pipeline_exchanges_;
};

}  // namespace vpod::compiler
