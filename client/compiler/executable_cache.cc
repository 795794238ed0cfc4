#include "client/compiler/executable_cache.h"

#include <elf.h>
#include <link.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/cache_key.h"
#include "client/compiler/checks.h"
#include "client/compiler/executable_file.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/planned_program.h"
#include "client/sdk_log/sdk_log.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/model/memory_options.h"

namespace vpod::compiler {
namespace {

// --- The program that compiles ---

// The build id in the notes of a segment; empty if there is none.
std::string BuildIdInNotes(absl::string_view notes) {
  constexpr absl::string_view kGnu("GNU\0", 4);
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof(note)) {
    std::memcpy(&note, notes.data(), sizeof(note));
    notes.remove_prefix(sizeof(note));
    const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
    const size_t name = padded(note.n_namesz), size = padded(note.n_descsz);
    if (notes.size() < name + size) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(0, note.n_namesz) == kGnu)
      return absl::BytesToHexString(notes.substr(name, note.n_descsz));
    notes.remove_prefix(name + size);
  }
  return "";
}

// The build id of the program or shared library that this code is part of.
std::string BuildId() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* result) {
        const auto here = reinterpret_cast<ElfW(Addr)>(&BuildIdInNotes);
        bool is_ours = false;
        std::string found;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = object->dlpi_phdr[i];
          const ElfW(Addr) begin = object->dlpi_addr + segment.p_vaddr;
          if (segment.p_type == PT_LOAD && here >= begin && here - begin < segment.p_memsz)
            is_ours = true;
          if (segment.p_type == PT_NOTE && found.empty())
            found = BuildIdInNotes({reinterpret_cast<const char*>(begin), segment.p_memsz});
        }
        if (is_ours) *static_cast<std::string*>(result) = found;
        return is_ours ? 1 : 0;
      },
      &id);
  return id;
}

// --- The key ---

// A sequence of values in which each one's end is known, so that different sequences have different
// bytes.
class Encoder {
 public:
  void Add(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Add(float value) { Add(uint64_t{std::bit_cast<uint32_t>(value)}); }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  void Add(absl::string_view text) {
    Add(uint64_t{text.size()});
    bytes_.append(text.data(), text.size());
  }
  void Add(const std::string& text) { Add(absl::string_view(text)); }
  void Add(bool value) { Add(uint64_t{value}); }
  void Add(uint32_t value) { Add(uint64_t{value}); }
  void Add(graph::Tensor value) { Add(value.id); }
  void Add(const graph::TensorType& type) {
    Add(static_cast<uint64_t>(type.type));
    Add(uint64_t{type.dims.size()});
    for (int64_t dim : type.dims) Add(static_cast<uint64_t>(dim));
  }
  template <class T>
  void Add(const std::optional<T>& value) {
    Add(value.has_value());
    if (value) Add(*value);
  }
  template <class T>
  void Add(const std::vector<T>& values) {
    Add(uint64_t{values.size()});
    for (const T& value : values) Add(value);
  }

  // The fields of these are named one by one, so that a new one does not compile until it is here.
  void Add(const graph::Value& value) {
    const auto& [type, origin, ipu, name, constant, elements, alias_of, gradient_to, stage,
                 is_checkpoint, region] = value;
    Add(type);
    Add(static_cast<uint64_t>(origin));
    Add(ipu);
    Add(name);
    Add(constant);
    Add(elements != nullptr);
    if (elements != nullptr) Add(*elements);
    Add(alias_of);
    Add(gradient_to);
    Add(stage);
    Add(is_checkpoint);
    Add(region);
  }
  void Add(const graph::Node& node) {
    const auto& [instruction, ipu, origin] = node;
    Add(instruction.SerializeAsString());  // without maps: the same in every process
    Add(ipu);
    Add(origin);
  }
  void Add(const graph::GradientRegion& region) {
    const auto& [outputs, inputs, cotangents, nodes, gradients, ipu, origin, first_value,
                 end_value] = region;
    Add(outputs);
    Add(inputs);
    Add(cotangents);
    Add(nodes);
    Add(gradients);
    Add(ipu);
    Add(origin);
    Add(first_value);
    Add(end_value);
  }
  void Add(const program::v1::Origin& origin) { Add(origin.SerializeAsString()); }
  void Add(const graph::GraphOutput& output) {
    const auto& [name, value] = output;
    Add(name);
    Add(value);
  }
  void Add(const graph::Assignment& assignment) {
    const auto& [variable, value, when] = assignment;
    Add(variable);
    Add(value);
    Add(static_cast<uint64_t>(when));
  }
  // Hyper-parameters are variables, with which an executable starts but which it does not contain.
  void Add(const Optimizer& optimizer) {
    const OptimizerStep step = StepOf(optimizer, 1);
    Add(step.instruction.SerializeAsString());
    Add(step.state);
    Add(step.counts_updates);
  }
  void Add(const OptimizerState& state) {
    // First values do not lie in an executable.
    const auto& [prefix, float16, initial] = state;
    static_cast<void>(initial);
    Add(std::string(prefix));
    Add(float16);
  }
  void Add(const ParameterGroup& group) {
    const auto& [variables, optimizer] = group;
    Add(variables);
    Add(optimizer);
  }
  void Add(const GradientOutput& output) {
    const auto& [name, value] = output;
    Add(name);
    Add(value);
  }
  void Add(const AutomaticLossScale& scale) {
    const auto& [growth, backoff, interval] = scale;
    Add(growth);
    Add(backoff);
    Add(interval);
  }
  void Add(const HistogramLossScale& scale) {
    const auto& [bin_edge, upper_proportion, period] = scale;
    Add(bin_edge);
    Add(upper_proportion);
    Add(period);
  }
  void Add(const ProductOptions& products) {
    const auto& [partials, memory_proportions] = products;
    Add(static_cast<uint64_t>(partials));
    Add(memory_proportions);
  }
  void Add(const ProgramSpec& spec) {
    const auto& [name, device_iterations, accumulation, loss, optimizer, groups, clip_norm,
                 clip_value, loss_scale, automatic, histogram, reduction, float16_accumulators,
                 output_mode, output_period, output_modes, gradient_outputs] = spec;
    Add(name);
    Add(device_iterations);
    Add(accumulation);
    Add(loss);
    Add(optimizer);
    Add(groups);
    Add(clip_norm);
    Add(clip_value);
    Add(loss_scale.has_value());  // its value is a variable's
    Add(automatic);
    Add(histogram);
    Add(static_cast<uint64_t>(reduction));
    Add(float16_accumulators);
    Add(static_cast<uint64_t>(output_mode));
    Add(output_period);
    Add(output_modes.size());
    for (const auto& [output, mode] : output_modes) {
      Add(output);
      Add(static_cast<uint64_t>(mode));
    }
    Add(gradient_outputs);
  }
  void Add(const graph::Graph& graph) {
    Add(graph.values());
    Add(graph.nodes());
    Add(graph.regions());
    Add(graph.origins().all());
    Add(graph.inputs());
    Add(graph.variables());
    Add(graph.buffers());
    Add(graph.outputs());
    Add(graph.assignments());
    for (const auto& [ipu, buffers] : graph.remote_buffers()) {
      Add(ipu);
      Add(uint64_t{buffers.size()});
      for (const program::v1::RemoteBuffer& buffer : buffers) Add(buffer.SerializeAsString());
    }
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// The encoded parts of what an executable follows from.
KeyParts PartsOf(const std::string& build_id, const graph::Graph& graph,
                 const CompileOptions& options) {
  // Printed passes and engine options change no executable, and of the front only the names lie
  // beside it.
  const auto& [ipus_per_replica, total_replicas, fusion, dump_passes, rounding, schedule,
               recomputation, products, off_chip_optimizer_state, off_chip_activations,
               off_chip_weights, off_chip_accumulators, tensor_shards, allow_out_of_memory, engine,
               programs, front] = options;
  static_cast<void>(dump_passes);
  static_cast<void>(engine);
  std::array<Encoder, kKeyPartNames.size()> encoders;
  auto& [compiler, replicas, ipus, others, of_programs, of_graph] = encoders;
  compiler.Add(build_id);
  replicas.Add(total_replicas);
  replicas.Add(tensor_shards);
  ipus.Add(ipus_per_replica);
  others.Add(model::ListOf(front.names));
  others.Add(fusion);
  others.Add(static_cast<uint64_t>(rounding));
  others.Add(allow_out_of_memory);
  others.Add(off_chip_optimizer_state);
  others.Add(off_chip_activations);
  others.Add(off_chip_weights);
  others.Add(off_chip_accumulators);
  others.Add(static_cast<uint64_t>(schedule));
  others.Add(static_cast<uint64_t>(recomputation));
  others.Add(products);
  of_programs.Add(programs);
  of_graph.Add(graph);
  KeyParts parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = encoders[i].bytes();
  return parts;
}

// --- Files ---

void Log(LogLevel level, absl::string_view text) {
  if (SdkLogs(LogModule::kEngine, level)) SdkLog(LogModule::kEngine, level, text);
}

// Null: it has to be compiled.
std::shared_ptr<const program::Executable> Find(const std::string& path, const std::string& key) {
  const auto unusable = [&](absl::string_view why) {
    Log(LogLevel::kWarn, absl::StrCat("Ignoring ", path, " of the executable cache: ", why));
    return nullptr;
  };
  const absl::Status is_file = base::CheckIsFileOrNothing(path);
  if (!is_file.ok()) return unusable(is_file.message());
  absl::StatusOr<ExecutableFile> file = ReadExecutableFile(path);
  if (file.ok() && file->key == key) return std::move(file->executable);
  if (file.ok()) return unusable("it is of another graph or another compiler");
  std::error_code error;  // std::filesystem throws without one
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found)
    return nullptr;
  return unusable(file.status().message());
}

void Keep(const std::string& directory, const std::string& path, const std::string& key,
          const program::Executable& executable) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // an error shows when the file is made
  const absl::Status kept = WriteExecutableFile(path, key, executable);
  if (kept.ok()) return;
  Log(LogLevel::kWarn, absl::StrCat("The executable is not cached in '", directory,
                                    "' (--executable-cache-path): ", kept.message()));
}

}  // namespace

absl::StatusOr<std::string> CacheKey(const graph::Graph& graph, const CompileOptions& options) {
  static const std::string* const build_id = new std::string(BuildId());
  if (build_id->empty())
    return absl::FailedPreconditionError("this program was linked without a build id");
  return KeyOf(PartsOf(*build_id, graph, options));
}

absl::StatusOr<Compiled> CompileCached(const graph::Graph& graph, const CompileOptions& options,
                                       const std::string& directory, const Progress& progress,
                                       std::string* miss) {
  if (directory.empty() || !options.dump_passes.empty() || IsPlannedProgram())
    return Compile(graph, options, progress);
  // A hit must not hide what a compilation would refuse.
  VPOD_RETURN_IF_ERROR(graph.status());
  VPOD_RETURN_IF_ERROR(CheckOptions(options));
  VPOD_RETURN_IF_ERROR(CheckGraph(graph, options));
  const absl::StatusOr<std::string> key = CacheKey(graph, options);
  if (!key.ok()) {
    Log(LogLevel::kWarn, absl::StrCat("The executable is not cached: ", key.status().message()));
    return Compile(graph, options, progress);
  }
  const std::string path = absl::StrCat(directory, "/", *key, kExecutableFileEnd);
  if (auto executable = Find(path, *key)) {
    Log(LogLevel::kInfo, absl::StrCat("Executable cache hit: ", path));
    Compiled compiled{.executable = std::move(executable)};
    compiled.initial_values = InitialValues(*compiled.executable, graph, options);
    return compiled;
  }
  const std::string difference = DifferenceFromNearest(directory, *key);
  Log(LogLevel::kInfo,
      absl::StrCat("Executable cache miss: ", path, difference.empty() ? "" : "; ", difference));
  if (miss != nullptr) *miss = difference;
  VPOD_ASSIGN_OR_RETURN(Compiled compiled, Compile(graph, options, progress));
  // Others must not get an executable that only this run may load.
  if (compiled.fits) Keep(directory, path, *key, *compiled.executable);
  return compiled;
}

}  // namespace vpod::compiler
