#include "client/compiler/compiler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/lowering.h"
#include "client/compiler/memory_plan.h"
#include "client/compiler/passes.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/float_codec.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;

// The tensor as the executable describes it, at a place in the arena.
v1::Tensor Describe(const LoweredTensor& tensor, uint64_t offset) {
  v1::Tensor entry;
  entry.set_type(tensor.type.type);
  entry.mutable_dims()->Add(tensor.type.dims.begin(), tensor.type.dims.end());
  entry.set_offset(offset);
  entry.set_wide_accumulator(tensor.wide_accumulator);
  if (!program::LiesAs(entry, tensor.strides))
    entry.mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
  return entry;
}

// Puts lowered programs together: one tensor table and arena an IPU, shared variables first, the
// temporaries of all programs over each other behind them.
class Assembler {
 public:
  Assembler(const graph::Graph& graph, const CompileOptions& options) : options_(options) {
    executable_.set_ipus_per_replica(options.ipus_per_replica);
    variables_.resize(options.ipus_per_replica);
    for (uint32_t i = 0; i < options.ipus_per_replica; ++i) {
      executable_.add_ipus();
      origins_.add_ipus();
    }
    for (const auto& [ipu, buffers] : graph.remote_buffers()) {
      if (ipu >= options.ipus_per_replica) continue;  // an error of the lowering, if it is used
      executable_.mutable_ipus(static_cast<int>(ipu))
          ->mutable_remote_buffers()
          ->Add(buffers.begin(), buffers.end());
    }
  }

  // First pass: variables get their places, so that all programs agree on them.
  void AddVariables(const LoweredProgram& program) {
    for (uint32_t ipu = 0; ipu < program.ipus.size(); ++ipu) {
      for (const LoweredTensor& tensor : program.ipus[ipu].tensors) {
        if (tensor.variable.empty() || variables_[ipu].contains(tensor.variable)) continue;
        v1::Ipu* text = executable_.mutable_ipus(static_cast<int>(ipu));
        const uint64_t offset = text->arena_bytes();
        text->set_arena_bytes(offset + (tensor.type.bytes() + 63) / 64 * 64);
        variables_[ipu][tensor.variable] = AddTensor(ipu, tensor, offset);
        v1::Variable* variable = executable_.add_variables();
        variable->set_name(tensor.variable);
        variable->set_ipu(ipu);
        variable->set_tensor(variables_[ipu][tensor.variable]);
      }
    }
  }

  // Second pass, for each program.
  void AddProgram(const ProgramSpec& spec, LoweredProgram program) {
    v1::Program* text = executable_.add_programs();
    text->set_name(spec.name);
    const std::vector<uint32_t> streams =
        MergeStreams(program, spec.device_iterations * spec.accumulation);
    const auto first_exchange = static_cast<uint32_t>(executable_.exchanges_size());
    std::vector<std::vector<uint32_t>> tensors;  // [ipu], indices of the executable
    for (uint32_t ipu = 0; ipu < program.ipus.size(); ++ipu) {
      LoweredIpu& lowered = program.ipus[ipu];
      tensors.push_back(PlaceTensors(ipu, lowered));
      for (auto& section : lowered.sections) {
        for (LoweredStep& step : section) {
          v1::Instruction& instruction = step.instruction;
          ForEachTensor(instruction, [&](uint32_t& index) { index = tensors[ipu][index]; });
          if (instruction.has_exchange()) {
            instruction.mutable_exchange()->set_exchange(first_exchange +
                                                         instruction.exchange().exchange());
          } else if (instruction.has_stream_in()) {
            instruction.mutable_stream_in()->set_stream(streams[instruction.stream_in().stream()]);
          } else if (instruction.has_stream_out()) {
            instruction.mutable_stream_out()->set_stream(
                streams[instruction.stream_out().stream()]);
          }
        }
      }
      if (lowered.update_condition)
        lowered.update_condition = tensors[ipu][*lowered.update_condition];
      text->add_functions(EmitFunctions(spec, lowered, ipu));
    }
    for (v1::Move& move : program.moves) {
      move.set_from_tensor(tensors[move.from_ipu()][move.from_tensor()]);
      move.set_to_tensor(tensors[move.to_ipu()][move.to_tensor()]);
      *executable_.add_exchanges()->add_moves() = std::move(move);
    }
  }

  v1::Executable Finish() {
    for (uint32_t ipu = 0; ipu < options_.ipus_per_replica; ++ipu) {
      v1::Ipu* text = executable_.mutable_ipus(static_cast<int>(ipu));
      text->set_arena_bytes(std::max(text->arena_bytes(), ends_.contains(ipu) ? ends_[ipu] : 0));
    }
    return std::move(executable_);
  }

  // The origins of the instructions that Finish returns.
  v1::Origins Origins() {
    for (const v1::Origin& origin : table_.all()) *origins_.add_origins() = origin;
    // Errors without names are better than none that can run.
    if (origins_.ByteSizeLong() > program::Limits().origin_bytes) origins_.Clear();
    return std::move(origins_);
  }

 private:
  // A function that is being made, and what its instructions belong to.
  struct NamedFunction {
    v1::Function text;
    v1::FunctionOrigins origins;

    v1::Instruction* Add(uint32_t origin) {
      origins.add_instructions(origin);
      return text.add_instructions();
    }
  };

  uint32_t AddTensor(uint32_t ipu, const LoweredTensor& tensor, uint64_t offset) {
    v1::Ipu* text = executable_.mutable_ipus(static_cast<int>(ipu));
    *text->add_tensors() = Describe(tensor, offset);
    return static_cast<uint32_t>(text->tensors_size() - 1);
  }

  // Stream indices of the executable for the program's own.
  std::vector<uint32_t> MergeStreams(const LoweredProgram& program, uint32_t transfers) {
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
      entry->set_transfers_per_run(std::max(entry->transfers_per_run(), transfers));
      indices.push_back(static_cast<uint32_t>(index));
    }
    return indices;
  }

  // Places tensors by their lifetimes in steps of the program text. Tensors used in Setup, and wide
  // accumulators, live to the end; the others die after their last use.
  std::vector<uint32_t> PlaceTensors(uint32_t ipu, LoweredIpu& lowered) {
    std::vector<Storage> storages(lowered.num_storages);
    std::vector<bool> seen(lowered.num_storages), whole_run(lowered.num_storages);
    for (const LoweredTensor& tensor : lowered.tensors) {
      Storage& storage = storages[tensor.storage];
      storage.bytes =
          std::max(storage.bytes, tensor.offset + program::ArenaBytes(Describe(tensor, 0)));
      if (tensor.wide_accumulator) whole_run[tensor.storage] = true;
    }
    int step = 0;
    for (int section = 0; section < kNumSections; ++section) {
      for (LoweredStep& each : lowered.sections[section]) {
        ForEachTensor(each.instruction, [&](uint32_t index) {
          const uint32_t id = lowered.tensors[index].storage;
          if (!seen[id]) storages[id].first = step;
          seen[id] = true;
          storages[id].last = step;
          if (section == static_cast<int>(Section::kSetup)) whole_run[id] = true;
        });
        ++step;
      }
    }
    std::vector<Storage> temporaries;
    std::vector<uint32_t> ids;
    std::set<uint32_t> persistent;
    for (const LoweredTensor& tensor : lowered.tensors) {
      if (!tensor.variable.empty()) persistent.insert(tensor.storage);
    }
    for (uint32_t id = 0; id < storages.size(); ++id) {
      if (persistent.contains(id)) continue;
      if (whole_run[id]) storages[id].first = 0, storages[id].last = step;
      temporaries.push_back(storages[id]);
      ids.push_back(id);
    }
    const uint64_t end =
        PlaceStorage(temporaries, executable_.ipus(static_cast<int>(ipu)).arena_bytes());
    ends_[ipu] = std::max(ends_[ipu], end);
    for (size_t i = 0; i < ids.size(); ++i) storages[ids[i]] = temporaries[i];
    for (const LoweredTensor& tensor : lowered.tensors) {
      if (tensor.variable.empty()) continue;
      const uint32_t index = variables_[ipu].at(tensor.variable);
      storages[tensor.storage].offset =
          executable_.ipus(static_cast<int>(ipu)).tensors(static_cast<int>(index)).offset();
    }
    std::vector<uint32_t> indices;
    for (const LoweredTensor& tensor : lowered.tensors) {
      indices.push_back(
          tensor.variable.empty()
              ? AddTensor(ipu, tensor, storages[tensor.storage].offset + tensor.offset)
              : variables_[ipu].at(tensor.variable));
    }
    return indices;
  }

  void Append(std::vector<LoweredStep>& from, NamedFunction& to) {
    for (LoweredStep& step : from) *to.Add(table_.Add(step.origin)) = std::move(step.instruction);
  }

  uint32_t AddFunction(uint32_t ipu, NamedFunction function) {
    *origins_.mutable_ipus(static_cast<int>(ipu))->add_functions() = std::move(function.origins);
    v1::Ipu* text = executable_.mutable_ipus(static_cast<int>(ipu));
    *text->add_functions() = std::move(function.text);
    return static_cast<uint32_t>(text->functions_size() - 1);
  }

  // `count` rounds of a body: a Repeat of a function, or the body itself.
  void AppendLoop(uint32_t ipu, uint32_t count, NamedFunction body, NamedFunction& to) {
    if (body.text.instructions().empty()) return;
    if (count == 1) {
      for (int i = 0; i < body.text.instructions_size(); ++i) {
        *to.Add(body.origins.instructions(i)) = std::move(*body.text.mutable_instructions(i));
      }
      return;
    }
    const uint32_t function = AddFunction(ipu, std::move(body));
    v1::Repeat* repeat = to.Add(kUnknown)->mutable_repeat();
    repeat->set_function(function);
    repeat->set_count(count);
  }

  // Adds the functions of a program, inner ones first; the entry.
  uint32_t EmitFunctions(const ProgramSpec& spec, LoweredIpu& lowered, uint32_t ipu) {
    const auto section = [&](Section s) -> std::vector<LoweredStep>& {
      return lowered.sections[static_cast<int>(s)];
    };
    NamedFunction entry, iteration, body;
    Append(section(Section::kBody), body);
    Append(section(Section::kClear), iteration);
    AppendLoop(ipu, spec.accumulation, std::move(body), iteration);
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
    Append(section(Section::kSetup), entry);
    AppendLoop(ipu, spec.device_iterations, std::move(iteration), entry);
    return AddFunction(ipu, std::move(entry));
  }

  static constexpr uint32_t kUnknown = 0;  // origin

  const CompileOptions& options_;
  v1::Executable executable_;
  graph::OriginTable table_;
  v1::Origins origins_;                                     // refers to the table
  std::vector<std::map<std::string, uint32_t>> variables_;  // [ipu] name -> tensor
  std::map<uint32_t, uint64_t> ends_;
};

absl::Status CheckLossScale(const ProgramSpec& spec) {
  const auto bad = [&](absl::string_view name, auto value, absl::string_view range) {
    return absl::InvalidArgumentError(
        absl::StrCat("program '", spec.name, "': ", name, " is ", value, ", must be ", range));
  };
  if (spec.loss_scale && !(*spec.loss_scale > 0 && std::isfinite(*spec.loss_scale)))
    return bad("the loss scale", *spec.loss_scale, "above 0 and finite");
  if (!spec.automatic_loss_scale) return absl::OkStatus();
  const auto [growth, backoff, interval] = *spec.automatic_loss_scale;
  if (!spec.loss_scale) {
    return absl::InvalidArgumentError(absl::StrCat(
        "program '", spec.name, "': an automatic loss scale needs a loss scale to start with"));
  }
  if (!(growth > 1 && std::isfinite(growth)))
    return bad("the loss scale's growth", growth, "above 1 and finite");
  if (!(backoff > 0 && backoff < 1))
    return bad("the loss scale's backoff", backoff, "above 0 and below 1");
  if (interval < 1) return bad("the loss scale's interval", interval, "1 or more");
  return absl::OkStatus();
}

absl::Status CheckOptions(const CompileOptions& options) {
  if (options.programs.empty()) return absl::InvalidArgumentError("no program to compile");
  if (options.total_replicas < 1) {
    return absl::InvalidArgumentError("total_replicas is 0, must be 1 or more");
  }
  const uint32_t ipus = options.ipus_per_replica;
  if (ipus != 1 && ipus != 2 && ipus != 4 && ipus != 8 && ipus != 16) {
    return absl::InvalidArgumentError(
        absl::StrCat("ipus_per_replica is ", ipus, ", must be 1, 2, 4, 8 or 16"));
  }
  const ProgramSpec* training = nullptr;
  for (const ProgramSpec& spec : options.programs) {
    if (spec.device_iterations < 1 || spec.accumulation < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "program '", spec.name, "': device iterations and accumulation must be 1 or more"));
    }
    if (!spec.loss.has_value() && spec.accumulation != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("program '", spec.name, "': inference needs an accumulation of 1"));
    }
    if (uint64_t{spec.device_iterations} * spec.accumulation >
        std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "program '", spec.name, "': ", spec.device_iterations, " device iterations × ",
          spec.accumulation, " micro-batches are too many for one run"));
    }
    if (!spec.loss.has_value()) continue;
    // All programs of an executable read the same variables.
    if (training != nullptr && (HyperParameters(*training) != HyperParameters(spec) ||
                                training->loss_scale != spec.loss_scale)) {
      return absl::InvalidArgumentError(absl::StrCat("programs '", training->name, "' and '",
                                                     spec.name, "' have different optimisers"));
    }
    VPOD_RETURN_IF_ERROR(CheckLossScale(spec));
    training = &spec;
  }
  return absl::OkStatus();
}

// A variable that is named like the optimiser's state would be taken for it.
absl::Status CheckNames(const graph::Graph& graph) {
  std::vector<graph::Tensor> state = graph.variables();
  state.insert(state.end(), graph.buffers().begin(), graph.buffers().end());
  for (graph::Tensor variable : state) {
    const std::string& name = graph.values()[variable.id].name;
    for (const char* prefix : kStatePrefixes) {
      if (!absl::StartsWith(name, prefix)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the variable name '", name, "' is reserved for the optimiser"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, std::string> InitialValues(const program::Executable& executable,
                                                 const graph::Graph& graph,
                                                 const CompileOptions& options) {
  std::map<std::string, std::string> values;
  for (const v1::Variable& variable : executable.proto().variables()) values[variable.name()];
  const auto set = [&](const std::string& name, const std::vector<float>& floats,
                       v1::DataType type) {
    const auto it = values.find(name);
    if (it != values.end()) it->second = program::EncodeFloats(floats, type);
  };
  std::vector<graph::Tensor> state = graph.variables();
  state.insert(state.end(), graph.buffers().begin(), graph.buffers().end());
  for (graph::Tensor variable : state) {
    const graph::Value& value = graph.values()[variable.id];
    set(value.name, graph.InitialValue(variable), value.type.type);
  }
  for (const ProgramSpec& spec : options.programs) {
    if (!spec.loss.has_value()) continue;
    for (uint32_t ipu = 0; ipu < options.ipus_per_replica; ++ipu)
      set(HyperParametersName(ipu), HyperParameters(spec), v1::FLOAT32);
    if (spec.loss_scale) set(kLossScaleName, {*spec.loss_scale}, v1::FLOAT32);
  }
  // The state of the optimiser begins with zeros.
  for (const program::HostTensor& variable : executable.host_tensors()) {
    if (variable.remote) continue;
    std::string& bytes = values[variable.name];
    if (bytes.empty()) bytes.resize(variable.type.bytes());
  }
  return values;
}

absl::StatusOr<Compiled> Compile(const graph::Graph& graph, const CompileOptions& options,
                                 const Progress& progress) {
  VPOD_RETURN_IF_ERROR(graph.status());
  VPOD_RETURN_IF_ERROR(CheckOptions(options));
  VPOD_RETURN_IF_ERROR(CheckNames(graph));
  // Two steps a program, then validation and initial values.
  const auto total = static_cast<uint32_t>(2 * options.programs.size() + 2);
  auto report = [&, done = uint32_t{0}](absl::string_view step) mutable {
    if (progress) progress(step, done++, total);
  };
  PassDump dump(options);
  std::vector<LoweredProgram> programs;
  Assembler assembler(graph, options);
  for (const ProgramSpec& spec : options.programs) {
    report("Lowering");
    VPOD_ASSIGN_OR_RETURN(LoweredProgram program, Lower(graph, spec, options, dump));
    assembler.AddVariables(program);
    programs.push_back(std::move(program));
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    report("Placing tensors");
    assembler.AddProgram(options.programs[i], std::move(programs[i]));
  }
  Compiled compiled;
  report("Validating");
  VPOD_ASSIGN_OR_RETURN(compiled.executable,
                        program::Executable::Make(assembler.Finish(), {}, assembler.Origins()));
  VPOD_RETURN_IF_ERROR(dump.Add("all", "executable", compiled.executable->proto()));
  report("Initial values");
  compiled.initial_values = InitialValues(*compiled.executable, graph, options);
  report("Done");
  return compiled;
}

}  // namespace vpod::compiler
