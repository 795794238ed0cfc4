#include "client/compiler/assembly.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"
#include "client/compiler/memory_plan.h"
#include "client/compiler/outlining.h"
#include "device/base/text.h"
#include "device/program/executable.h"
#include "device/program/origins.h"
#include "device/program/uniformity.h"

namespace vpod::compiler {

namespace v1 = program::v1;

namespace {

// The storages that the micro-batches of a replica write. Other variables are likely to be equal on
// all replicas (device/program/uniformity.h); they lie in pages of their own, which replicas can
// share.
std::set<uint32_t> StoragesOfReplicas(const LoweredIpu& ipu) {
  std::set<uint32_t> storages;
  for (Section section : {Section::kSetup, Section::kClear, Section::kBody}) {
    for (const LoweredStep& step : ipu.sections[static_cast<int>(section)]) {
      for (uint32_t output : step.instruction.outputs())
        storages.insert(ipu.tensors[output].storage);
    }
  }
  for (const std::vector<LoweredStep>& steps : ipu.positions) {
    for (const LoweredStep& step : steps) {
      for (uint32_t output : step.instruction.outputs())
        storages.insert(ipu.tensors[output].storage);
    }
  }
  return storages;
}

// The host sees a variable as a whole if replicas have parts of it.
void SetShards(const LoweredTensor& tensor, v1::Variable& variable) {
  const LoweredTensor::Shards& shards = tensor.shards;
  if (shards.count <= 1) return;
  const v1::Tensor whole =
      Describe({.type = {tensor.type.type, shards.dims}, .strides = shards.strides}, /*offset=*/0);
  variable.set_shards(shards.count);
  *variable.mutable_host_dims() = whole.dims();
  *variable.mutable_host_strides() = whole.strides();
}

}  // namespace

Assembler::Assembler(uint32_t ipus, uint32_t total_replicas) {
  executable_.set_ipus_per_replica(ipus);
  executable_.set_total_replicas(total_replicas);
  variables_.resize(ipus);
  remote_buffers_.resize(ipus);
  for (uint32_t i = 0; i < ipus; ++i) {
    executable_.add_ipus();
    origins_.add_ipus();
  }
}

void Assembler::AddState(const LoweredProgram& program) {
  for (uint32_t ipu = 0; ipu < program.ipus.size(); ++ipu) {
    for (const v1::RemoteBuffer& buffer : program.ipus[ipu].remote_buffers) {
      const auto number = static_cast<uint32_t>(remote_buffers_[ipu].size());
      if (!remote_buffers_[ipu].try_emplace(buffer.name(), number).second) continue;
      *executable_.mutable_ipus(static_cast<int>(ipu))->add_remote_buffers() = buffer;
    }
    const std::set<uint32_t> own = StoragesOfReplicas(program.ipus[ipu]);
    std::vector<const LoweredTensor*> variables;
    std::set<absl::string_view> names;
    for (const LoweredTensor& tensor : program.ipus[ipu].tensors) {
      if (tensor.variable.empty() || variables_[ipu].contains(tensor.variable)) continue;
      if (names.insert(tensor.variable).second) variables.push_back(&tensor);
    }
    v1::Ipu* entry = executable_.mutable_ipus(static_cast<int>(ipu));
    for (bool shared : {true, false}) {
      AlignArena(ipu);
      for (const LoweredTensor* tensor : variables) {
        if (own.contains(tensor->storage) == shared) continue;
        const uint64_t offset = entry->arena_bytes();
        entry->set_arena_bytes(offset + (tensor->type.bytes() + 63) / 64 * 64);
        variables_[ipu][tensor->variable] = AddTensor(ipu, *tensor, offset);
      }
    }
    // Known to the host in the order of the program.
    for (const LoweredTensor* tensor : variables) {
      v1::Variable* variable = executable_.add_variables();
      variable->set_name(tensor->variable);
      variable->set_ipu(ipu);
      variable->set_tensor(variables_[ipu][tensor->variable]);
      SetShards(*tensor, *variable);
    }
  }
}

void Assembler::AlignArena(uint32_t ipu) {
  v1::Ipu* entry = executable_.mutable_ipus(static_cast<int>(ipu));
  entry->set_arena_bytes((entry->arena_bytes() + program::kPageBytes - 1) / program::kPageBytes *
                         program::kPageBytes);
}

void Assembler::AddProgram(LoweredProgram program) {
  v1::Program* entry = executable_.add_programs();
  entry->set_name(program.name);
  const std::vector<uint32_t> streams = MergeStreams(program);
  const auto first_exchange = static_cast<uint32_t>(executable_.exchanges_size());
  std::vector<std::vector<uint32_t>> tensors;  // [ipu], indices of the executable
  for (uint32_t ipu = 0; ipu < program.ipus.size(); ++ipu)
    tensors.push_back(AddTensors(ipu, program.ipus[ipu]));
  const auto place = [&](v1::Move& move) {
    move.set_from_tensor(tensors[move.from_ipu()][move.from_tensor()]);
    move.set_to_tensor(tensors[move.to_ipu()][move.to_tensor()]);
  };
  for (v1::Move& move : program.moves) {
    place(move);
    *executable_.add_exchanges()->add_moves() = std::move(move);
  }
  pipeline_moves_.clear();
  pipeline_exchanges_.clear();
  for (PipelineMove& move : program.pipeline.moves) {
    place(move.move);
    pipeline_moves_.push_back(move.move);
  }
  for (uint32_t ipu = 0; ipu < program.ipus.size(); ++ipu) {
    LoweredIpu& lowered = program.ipus[ipu];
    // One that a text names and does not have is refused with the executable.
    const auto remote_buffer = [&](uint32_t number) {
      return number < lowered.remote_buffers.size()
                 ? remote_buffers_[ipu].at(lowered.remote_buffers[number].name())
                 : ~0u;
    };
    const auto renumber = [&](std::vector<LoweredStep>& steps) {
      for (LoweredStep& step : steps) {
        v1::Instruction& instruction = step.instruction;
        program::ForEachTensor(instruction, [&](uint32_t& index) { index = tensors[ipu][index]; });
        if (instruction.has_exchange()) {
          instruction.mutable_exchange()->set_exchange(first_exchange +
                                                       instruction.exchange().exchange());
        } else if (instruction.has_stream_in()) {
          instruction.mutable_stream_in()->set_stream(streams[instruction.stream_in().stream()]);
        } else if (instruction.has_stream_out()) {
          instruction.mutable_stream_out()->set_stream(streams[instruction.stream_out().stream()]);
        } else if (instruction.has_remote_load()) {
          instruction.mutable_remote_load()->set_buffer(
              remote_buffer(instruction.remote_load().buffer()));
        } else if (instruction.has_remote_store()) {
          instruction.mutable_remote_store()->set_buffer(
              remote_buffer(instruction.remote_store().buffer()));
        }
      }
    };
    for (auto& section : lowered.sections) renumber(section);
    renumber(lowered.cycle);
    for (auto& steps : lowered.positions) renumber(steps);
    if (lowered.update_condition)
      lowered.update_condition = tensors[ipu][*lowered.update_condition];
    entry->add_functions(EmitFunctions(program, ipu));
  }
}

v1::Executable Assembler::Finish() {
  for (uint32_t ipu = 0; ipu < variables_.size(); ++ipu) {
    v1::Ipu* entry = executable_.mutable_ipus(static_cast<int>(ipu));
    entry->set_arena_bytes(std::max(entry->arena_bytes(), ends_.contains(ipu) ? ends_[ipu] : 0));
    OutlineBlocks(*entry);
  }
  return std::move(executable_);
}

v1::Origins Assembler::Origins(const std::vector<std::string>& memory_options) {
  // A program is not refused because a name of an option cannot be shown.
  for (const std::string& name : memory_options)
    origins_.add_memory_options(base::Printable(name, program::kMostOriginBytes - 3));
  for (const v1::Origin& origin : table_.all()) *origins_.add_origins() = origin;
  // Errors without names are better than none that can run.
  if (origins_.ByteSizeLong() > program::Limits().origin_bytes) origins_.Clear();
  return std::move(origins_);
}

uint32_t Assembler::AddTensor(uint32_t ipu, const LoweredTensor& tensor, uint64_t offset) {
  v1::Ipu* entry = executable_.mutable_ipus(static_cast<int>(ipu));
  *entry->add_tensors() = Describe(tensor, offset);
  return static_cast<uint32_t>(entry->tensors_size() - 1);
}

std::vector<uint32_t> Assembler::MergeStreams(const LoweredProgram& program) {
  const uint32_t micro_batches = program.device_iterations * program.accumulation;
  std::set<uint32_t> at_end;  // by the program's own number
  for (const LoweredIpu& ipu : program.ipus) {
    for (const LoweredStep& step : ipu.sections[static_cast<int>(Section::kEnd)]) {
      if (step.instruction.has_stream_out()) at_end.insert(step.instruction.stream_out().stream());
    }
  }
  periodic_.clear();
  std::vector<uint32_t> indices;
  for (const LoweredStream& stream : program.streams) {
    int index = 0;
    while (index < executable_.streams_size() && executable_.streams(index).name() != stream.name)
      ++index;
    if (index == executable_.streams_size()) {
      v1::Stream* entry = executable_.add_streams();
      entry->set_name(stream.name);
      entry->set_to_device(stream.to_device);
      entry->set_ipu(stream.ipu);
      entry->set_type(stream.type.type);
      entry->mutable_dims()->Add(stream.type.dims.begin(), stream.type.dims.end());
    }
    v1::Stream* entry = executable_.mutable_streams(index);
    const uint32_t transfers = at_end.contains(static_cast<uint32_t>(indices.size())) ? 1
                               : stream.periodic ? micro_batches / program.output_period
                                                 : micro_batches;
    entry->set_transfers_per_run(std::max(entry->transfers_per_run(), transfers));
    indices.push_back(static_cast<uint32_t>(index));
    if (stream.periodic) periodic_.insert(indices.back());
  }
  return indices;
}

std::vector<uint32_t> Assembler::AddTensors(uint32_t ipu, LoweredIpu& lowered) {
  const v1::Ipu& entry = executable_.ipus(static_cast<int>(ipu));
  std::map<std::string, uint64_t> offsets;
  for (const auto& [name, tensor] : variables_[ipu])
    offsets[name] = entry.tensors(static_cast<int>(tensor)).offset();
  const MemoryPlan plan = PlanMemory(lowered, offsets, entry.arena_bytes());
  ends_[ipu] = std::max(ends_[ipu], plan.end);
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < lowered.tensors.size(); ++i) {
    const LoweredTensor& tensor = lowered.tensors[i];
    indices.push_back(tensor.variable.empty() ? AddTensor(ipu, tensor, plan.offsets[i])
                                              : variables_[ipu].at(tensor.variable));
  }
  return indices;
}

bool Assembler::IsPeriodic(const LoweredStep& step) const {
  return step.instruction.has_stream_out() &&
         periodic_.contains(step.instruction.stream_out().stream());
}

void Assembler::Append(const std::vector<LoweredStep>& from, NamedFunction& to, bool outputs) {
  for (const LoweredStep& step : from) {
    if (outputs || !IsPeriodic(step)) *to.Add(table_.Add(step.origin)) = step.instruction;
  }
}

uint32_t Assembler::AddFunction(uint32_t ipu, NamedFunction named) {
  *origins_.mutable_ipus(static_cast<int>(ipu))->add_functions() = std::move(named.origins);
  v1::Ipu* entry = executable_.mutable_ipus(static_cast<int>(ipu));
  *entry->add_functions() = std::move(named.function);
  return static_cast<uint32_t>(entry->functions_size() - 1);
}

void Assembler::AppendLoop(uint32_t ipu, uint32_t count, NamedFunction body, NamedFunction& to) {
  if (body.function.instructions().empty()) return;
  if (count == 1) {
    for (int i = 0; i < body.function.instructions_size(); ++i) {
      *to.Add(body.origins.instructions(i)) = std::move(*body.function.mutable_instructions(i));
    }
    return;
  }
  const uint32_t function = AddFunction(ipu, std::move(body));
  v1::Repeat* repeat = to.Add(kUnknown)->mutable_repeat();
  repeat->set_function(function);
  repeat->set_count(count);
}

Assembler::NamedFunction Assembler::IterationOf(LoweredProgram& program, uint32_t ipu,
                                                bool outputs) {
  LoweredIpu& lowered = program.ipus[ipu];
  const auto section = [&](Section s) -> const std::vector<LoweredStep>& {
    return lowered.sections[static_cast<int>(s)];
  };
  NamedFunction iteration;
  Append(section(Section::kClear), iteration);
  if (program.pipeline.period > 0) {
    const bool is_iteration = program.accumulation > 1;  // else the run has one pipeline
    const uint32_t period = is_iteration ? uint32_t{outputs} : program.output_period;
    AppendPipeline(program, ipu, period, iteration);
  } else {
    NamedFunction body;
    Append(section(Section::kBody), body, outputs);
    AppendLoop(ipu, program.micro_batches(), std::move(body), iteration);
  }
  Append(section(Section::kReduce), iteration);
  if (lowered.update_condition) {
    NamedFunction update;
    Append(section(Section::kUpdate), update);
    const uint32_t function = AddFunction(ipu, std::move(update));
    v1::Instruction* condition = iteration.Add(kUnknown);
    condition->add_inputs(*lowered.update_condition);
    condition->mutable_if_()->set_then_function(function);
  } else {
    Append(section(Section::kUpdate), iteration);
  }
  Append(section(Section::kFinish), iteration);
  return iteration;
}

uint32_t Assembler::EmitFunctions(LoweredProgram& program, uint32_t ipu) {
  const LoweredIpu& lowered = program.ipus[ipu];
  NamedFunction run;
  Append(lowered.sections[static_cast<int>(Section::kSetup)], run);
  const uint32_t iterations =
      program.device_iterations * program.accumulation / program.micro_batches();
  // On all IPUs, as they exchange tensors.
  const uint32_t quiet = iterations > 1 ? program.output_period - 1 : 0;
  NamedFunction iteration = IterationOf(program, ipu, true);
  if (quiet == 0) {
    AppendLoop(ipu, iterations, std::move(iteration), run);
  } else {
    NamedFunction unit;
    AppendLoop(ipu, quiet, IterationOf(program, ipu, false), unit);
    AppendLoop(ipu, 1, std::move(iteration), unit);
    AppendLoop(ipu, iterations / program.output_period, std::move(unit), run);
  }
  Append(lowered.sections[static_cast<int>(Section::kEnd)], run);
  return AddFunction(ipu, std::move(run));
}

}  // namespace vpod::compiler
