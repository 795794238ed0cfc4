// The part of Assembler that writes out the cycles of a pipeline.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "client/compiler/assembly.h"

namespace vpod::compiler {

namespace v1 = program::v1;

class Assembler::PipelineWriter {
 public:
  PipelineWriter(const LoweredProgram& program, uint32_t ipu, uint32_t output_period,
                 Assembler& assembler)
      : ipu_(ipu),
        lowered_(program.ipus[ipu]),
        pipeline_(program.pipeline),
        micro_batches_(program.micro_batches()),
        output_period_(output_period),
        assembler_(assembler) {
    for (uint32_t position = 0; position < lowered_.positions.size(); ++position) {
      if (HasOutputs(position)) with_outputs_.push_back(position);
    }
  }

  // Micro-batches enter in the first cycles, are in all positions in those from `ramp` to `full`,
  // and leave in the last ones.
  void Append(NamedFunction& to) {
    const uint32_t ramp = pipeline_.Ramp(), full = std::max(micro_batches_, ramp),
                   unit = std::max(1u, output_period_), units = (full - ramp) / unit;
    for (uint32_t cycle = 0; cycle < ramp; ++cycle) AppendCycle(cycle, to);
    if (units > 0) {
      NamedFunction main;
      AppendFullCycles(ramp, ramp + unit, main);
      assembler_.AppendLoop(ipu_, units, std::move(main), to);
    }
    AppendFullCycles(ramp + units * unit, full, to);
    for (uint32_t cycle = full; cycle < micro_batches_ + ramp; ++cycle) AppendCycle(cycle, to);
  }

 private:
  // To periodic streams, as everywhere below.
  bool HasOutputs(uint32_t position) const {
    const std::vector<LoweredStep>& steps = lowered_.positions[position];
    return std::any_of(steps.begin(), steps.end(),
                       [&](const LoweredStep& step) { return assembler_.IsPeriodic(step); });
  }
  // Whether the micro-batch that is in a position gives its outputs.
  bool GivesOutputs(uint32_t position, uint32_t cycle) const {
    const uint32_t micro_batch = cycle - position / pipeline_.period;
    return output_period_ > 0 && (micro_batch + 1) % output_period_ == 0;
  }
  bool Works(uint32_t position, uint32_t cycle) const {
    const uint32_t behind = position / pipeline_.period;
    return behind <= cycle && cycle - behind < micro_batches_;
  }

  uint32_t FunctionOf(uint32_t position, uint32_t cycle) {
    const bool outputs = !HasOutputs(position) || GivesOutputs(position, cycle);
    const auto [function, is_new] = functions_.try_emplace({position, outputs});
    if (is_new) {
      NamedFunction steps;
      assembler_.Append(lowered_.positions[position], steps, outputs);
      function->second = assembler_.AddFunction(ipu_, std::move(steps));
    }
    return function->second;
  }

  void AppendCycle(uint32_t cycle, NamedFunction& to) {
    assembler_.Append(lowered_.cycle, to);
    for (uint32_t tick = 0; tick < pipeline_.period; ++tick) {
      for (uint32_t p = tick; p < lowered_.positions.size(); p += pipeline_.period) {
        if (Works(p, cycle) && !lowered_.positions[p].empty())
          to.Add(kUnknown)->mutable_call()->set_function(FunctionOf(p, cycle));
      }
      AppendMoves(tick, cycle, to);
    }
  }

  void AppendMoves(uint32_t tick, uint32_t cycle, NamedFunction& to) {
    std::vector<uint32_t> moves, sent, received;
    for (uint32_t i = 0; i < pipeline_.moves.size(); ++i) {
      const auto& [move, position] = pipeline_.moves[i];
      if (position % pipeline_.period != tick || !Works(position, cycle)) continue;
      moves.push_back(i);
      if (move.from_ipu() == ipu_) sent.push_back(move.from_tensor());
      if (move.to_ipu() == ipu_) received.push_back(move.to_tensor());
    }
    if (sent.empty() && received.empty()) return;
    v1::Instruction* step = to.Add(kUnknown);
    step->mutable_exchange()->set_exchange(assembler_.ExchangeOf(moves));
    step->mutable_inputs()->Add(sent.begin(), sent.end());
    step->mutable_outputs()->Add(received.begin(), received.end());
  }

  // Cycles in which all positions work, as loops of those that give the same outputs.
  void AppendFullCycles(uint32_t cycle, uint32_t end, NamedFunction& to) {
    const auto are_alike = [&](uint32_t a, uint32_t b) {
      return std::all_of(with_outputs_.begin(), with_outputs_.end(), [&](uint32_t position) {
        return GivesOutputs(position, a) == GivesOutputs(position, b);
      });
    };
    while (cycle < end) {
      const uint32_t first = cycle++;
      while (cycle < end && are_alike(first, cycle)) ++cycle;
      NamedFunction once;
      AppendCycle(first, once);
      assembler_.AppendLoop(ipu_, cycle - first, std::move(once), to);
    }
  }

  const uint32_t ipu_;
  const LoweredIpu& lowered_;
  const PipelineShape& pipeline_;
  const uint32_t micro_batches_, output_period_;
  Assembler& assembler_;
  std::vector<uint32_t> with_outputs_;                       // positions
  std::map<std::pair<uint32_t, bool>, uint32_t> functions_;  // by position, with outputs or without
};

uint32_t Assembler::ExchangeOf(const std::vector<uint32_t>& moves) {
  const auto [it, is_new] =
      pipeline_exchanges_.try_emplace(moves, static_cast<uint32_t>(executable_.exchanges_size()));
  if (is_new) {
    v1::Exchange* exchange = executable_.add_exchanges();
    for (uint32_t move : moves) *exchange->add_moves() = pipeline_moves_[move];
  }
  return it->second;
}

void Assembler::AppendPipeline(const LoweredProgram& program, uint32_t ipu, uint32_t output_period,
                               NamedFunction& to) {
  PipelineWriter(program, ipu, output_period, *this).Append(to);
}

}  // namespace vpod::compiler
