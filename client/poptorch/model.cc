#include "client/poptorch/model.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/compiler/executable_cache.h"
#include "client/compiler/executable_file.h"
#include "client/poptorch/options.h"
#include "client/poptorch/reported_compilation.h"
#include "client/poptorch/types.h"
#include "client/session/ipu_model.h"
#include "client/session/open.h"
#include "device/base/status.h"

namespace vpod::poptorch {
namespace {

absl::StatusOr<std::unique_ptr<session::Device>> Open(const DeviceOptions& device,
                                                      uint32_t replicas, uint32_t ipus) {
  if (device.ipu_model)
    return session::CreateIpuModel({.replicas = replicas, .ipus_per_replica = ipus});
  using Wait = std::chrono::milliseconds;
  auto attached = session::AttachDevice({.replicas = replicas,
                                         .ipus_per_replica = ipus,
                                         .device_id = device.device_id,
                                         .wait = device.wait ? Wait::max() : Wait::zero(),
                                         .stopped = device.stopped});
  if (attached.ok()) return attached;
  const std::string what = device.device_id ? absl::StrCat("device Id ", *device.device_id)
                                            : absl::StrCat(replicas * ipus, " IPU(s)");
  // The attachment says in its words what it could not acquire.
  absl::string_view why = attached.status().message();
  if (absl::StartsWith(why, "Failed to acquire ")) why.remove_prefix(why.find(": ") + 2);
  return absl::Status(attached.status().code(),
                      absl::StrCat("Failed to acquire ", what, ": ", why));
}

absl::Status WrongSize(const std::string& what, size_t size, size_t wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", size, " bytes, must have ", wanted));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(TapeProgram program) {
  VPOD_ASSIGN_OR_RETURN(BuiltGraph built,
                        BuildGraph(program.tape, program.options, program.optimizer));
  VPOD_ASSIGN_OR_RETURN(compiler::CompileOptions options, CompileOptionsFor(program, built));
  std::unique_ptr<Model> model(new Model(std::move(program), std::move(built), std::move(options)));
  VPOD_RETURN_IF_ERROR(model->DescribeStreams());
  return model;
}

Model::Model(TapeProgram program, BuiltGraph built, compiler::CompileOptions options)
    : program_(std::move(program)), built_(std::move(built)), options_(std::move(options)) {
  for (const auto* list : {&program_.tape.parameters, &program_.tape.buffers}) {
    for (const NamedValue& each : *list) {
      TapeValue type = program_.tape.values[static_cast<size_t>(each.value)];
      if (each.groups) type.dims.insert(type.dims.begin(), each.groups->count);
      state_.emplace(each.name, std::move(type));
    }
  }
}

absl::Status Model::DescribeStreams() {
  const Tape& tape = program_.tape;
  const auto add_output = [&](std::string name, ValueId value,
                              const OutputReturn& returned) -> absl::Status {
    const TapeValue& host = tape.values[static_cast<size_t>(value)];
    VPOD_ASSIGN_OR_RETURN(const program::TensorType type, DeviceType(host));
    output_types_.push_back({HostType(type.type), type.dims});
    output_names_.push_back(std::move(name));
    output_returns_.push_back(returned);
    return absl::OkStatus();
  };
  for (const NamedValue& input : tape.inputs)
    input_types_.push_back(tape.values[static_cast<size_t>(input.value)]);
  const auto results = OutputReturn::Of(program_.options);
  for (size_t i = 0; i < tape.results.size(); ++i)
    VPOD_RETURN_IF_ERROR(add_output(ResultName(i), tape.results[i], results));
  for (size_t i = 0; i < tape.inputs.size(); ++i) {
    if (tape.inputs[i].final == tape.inputs[i].value) continue;
    written_inputs_.push_back(i);
    VPOD_RETURN_IF_ERROR(add_output(WrittenInputName(i), tape.inputs[i].final, results));
  }
  for (size_t i = 0; i < program_.options.anchors.size(); ++i) {
    const Anchor& anchor = program_.options.anchors[i];
    VPOD_RETURN_IF_ERROR(add_output(AnchorName(i), anchor.value, OutputReturn::Of(anchor)));
  }
  return absl::OkStatus();
}

uint32_t Model::input_copies() const {
  return MicroBatches(program_.options) * InputGroups(program_.options);
}

uint32_t Model::output_copies(size_t output) const {
  return ReturnedMicroBatches(program_.options, output_returns_[output]) *
         program_.options.replicas;
}

absl::Status Model::Compile(const compiler::Progress& progress) {
  if (compiled_) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(
      compiled_, CompileOrReport(built_.graph, options_, program_.options.cache_directory, progress,
                                 &cache_miss_));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Model::ExecutableBytes() const {
  if (!compiled_) return absl::FailedPreconditionError("the model is not compiled");
  if (!compiled_->fits) {
    return absl::FailedPreconditionError(
        "the model does not fit the memory of an IPU, so that its executable is not saved");
  }
  VPOD_ASSIGN_OR_RETURN(const std::string key, compiler::CacheKey(built_.graph, options_));
  return compiler::ExecutableFileBytes(key, *compiled_->executable);
}

absl::StatusOr<bool> Model::TakeExecutable(absl::string_view bytes) {
  VPOD_ASSIGN_OR_RETURN(compiler::ExecutableFile file, compiler::ParseExecutableFile(bytes));
  VPOD_ASSIGN_OR_RETURN(const std::string key, compiler::CacheKey(built_.graph, options_));
  if (file.key != key) return false;
  compiled_ = compiler::Compiled{.executable = std::move(file.executable)};
  compiled_->initial_values =
      compiler::InitialValues(*compiled_->executable, built_.graph, options_);
  return true;
}

absl::Status Model::Load(const DeviceOptions& device) {
  if (!compiled_) return absl::FailedPreconditionError("the model is not compiled");
  if (session_ != nullptr) return absl::FailedPreconditionError("Device is already attached");
  VPOD_ASSIGN_OR_RETURN(std::unique_ptr<session::Device> opened,
                        Open(device, program_.options.replicas, options_.ipus_per_replica));
  VPOD_ASSIGN_OR_RETURN(
      session_,
      session::Session::Create(std::move(opened), *compiled_,
                               {.check_finite = program_.options.check_finite}, options_.engine));
  cycles_.reset();
  clock_hz_ = session_->device().clock_hz();
  VPOD_RETURN_IF_ERROR(WriteReplicaGroups());
  return WriteSeed();
}

absl::Status Model::WriteReplicaGroups() {
  const uint32_t replicas = program_.options.replicas;
  for (const NamedValue& parameter : program_.tape.parameters) {
    const std::string name = GroupNumberName(parameter.name);
    if (!parameter.groups || !compiled_->executable->FindVariable(name).ok()) continue;
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      const auto group = static_cast<int32_t>(GroupOf(*parameter.groups, replicas, replica));
      const session::WriteFrom number = {name, &group, sizeof group};
      VPOD_RETURN_IF_ERROR(session_->WriteState({&number, 1}, replica));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::WriteSeed() {
  if (!program_.options.seed) return absl::OkStatus();
  const uint64_t seed = *program_.options.seed;
  const uint32_t words[] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const std::string prefix = absl::StrCat(graph::kRandomPrefix, "seed");
  for (const program::HostTensor& variable : compiled_->executable->host_tensors()) {
    if (variable.name.rfind(prefix, 0) != 0) continue;
    VPOD_RETURN_IF_ERROR(session_->WriteBytes(
        variable.name, absl::string_view(reinterpret_cast<const char*>(words), sizeof words)));
  }
  return absl::OkStatus();
}

absl::Status Model::CheckLoaded() const {
  if (session_ == nullptr) return absl::FailedPreconditionError("Device is not attached");
  return absl::OkStatus();
}

// --- Runs ---

absl::Status Model::WriteInput(size_t input, ConstBytes bytes) {
  const std::string stream = InputName(input);
  const TapeValue& host = input_types_[input];
  const std::string what = absl::StrCat("input '", program_.tape.inputs[input].name, "'");
  const size_t micro_batch = HostBytes(host);
  if (bytes.size != micro_batch * input_copies())
    return WrongSize(what, bytes.size, micro_batch * input_copies());
  // The program does not read it.
  if (!compiled_->executable->FindStream(stream).ok()) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const program::TensorType type, DeviceType(host));
  const uint32_t groups = InputGroups(program_.options);
  const auto* from = static_cast<const char*>(bytes.data);
  for (uint32_t replica = 0; replica < program_.options.replicas; ++replica) {
    VPOD_ASSIGN_OR_RETURN(const absl::Span<std::byte> slot, session_->StreamBytes(stream, replica));
    const uint32_t group = InputGroupOf(program_.options, replica);
    for (uint32_t i = 0; i < MicroBatches(program_.options); ++i) {
      const char* slice = from + (size_t{i} * groups + group) * micro_batch;
      VPOD_RETURN_IF_ERROR(
          ToDevice(what, host.type, {slice, micro_batch}, slot.data() + i * type.bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::ReadOutput(const std::string& name, size_t output, MutableBytes bytes) {
  const size_t micro_batch = HostBytes(output_types_[output]);
  const size_t size = micro_batch * output_copies(output);
  if (bytes.size != size) return WrongSize(absl::StrCat("output ", output), bytes.size, size);
  const uint32_t replicas = program_.options.replicas;
  const std::vector<uint32_t> places = ReturnedPlaces(program_.options, output_returns_[output]);
  auto* to = static_cast<char*>(bytes.data);
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    VPOD_ASSIGN_OR_RETURN(const absl::Span<std::byte> slot, session_->StreamBytes(name, replica));
    for (size_t i = 0; i < places.size(); ++i) {
      std::memcpy(to + (i * replicas + replica) * micro_batch,
                  slot.data() + places[i] * micro_batch, micro_batch);
    }
  }
  return absl::OkStatus();
}

absl::Status Model::Run(absl::Span<const ConstBytes> inputs,
                        absl::Span<const MutableBytes> outputs) {
  VPOD_RETURN_IF_ERROR(CheckLoaded());
  if (inputs.size() != input_types_.size() || outputs.size() != output_types_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", input_types_.size(), " inputs and ", output_types_.size(),
                     " outputs, and not ", inputs.size(), " and ", outputs.size()));
  }
  const bool synthetic = program_.options.synthetic_data;
  for (size_t i = 0; i < inputs.size() && !synthetic; ++i)
    VPOD_RETURN_IF_ERROR(WriteInput(i, inputs[i]));
  VPOD_ASSIGN_OR_RETURN(cycles_, session_->Run(program_.options.name));
  if (synthetic) {
    for (const MutableBytes& output : outputs) std::memset(output.data, 0, output.size);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    VPOD_RETURN_IF_ERROR(ReadOutput(output_names_[i], i, outputs[i]));
  return absl::OkStatus();
}

absl::StatusOr<Model::Transfers> Model::PlannedTransfers() const {
  if (!compiled_) return absl::FailedPreconditionError("the model is not compiled");
  const program::Executable& executable = *compiled_->executable;
  VPOD_ASSIGN_OR_RETURN(const uint32_t program, executable.FindProgram(program_.options.name));
  model::Topology topology{.num_replicas = options_.total_replicas,
                           .ipus_per_replica = options_.ipus_per_replica};
  if (clock_hz_) topology.clock_hz = *clock_hz_;
  const auto of_streams = TransfersOf(executable, program, topology);
  const auto of = [&](const std::string& name) {
    const auto found = of_streams.find(name);
    return found == of_streams.end() ? std::vector<Transfer>() : found->second;
  };
  Transfers transfers;
  for (size_t i = 0; i < input_types_.size(); ++i) transfers.inputs.push_back(of(InputName(i)));
  for (size_t i = 0; i < program_.tape.results.size(); ++i) {
    const std::vector<Transfer> sent = of(ResultName(i));
    std::vector<Transfer>& returned = transfers.outputs.emplace_back();
    for (uint32_t place : ReturnedPlaces(program_.options, output_returns_[i])) {
      if (place < sent.size()) returned.push_back(sent[place]);
    }
  }
  return transfers;
}

void Model::Cancel() {
  if (session_ != nullptr) session_->device().Cancel();
}

// --- State ---

const TapeValue* Model::HostTypeOf(const std::string& name) const {
  const auto found = state_.find(name);
  return found == state_.end() ? nullptr : &found->second;
}

absl::StatusOr<const program::HostTensor*> Model::FindState(const std::string& name) const {
  const auto found = compiled_->executable->FindVariable(name);
  if (!found.ok() && HostTypeOf(name) != nullptr) return nullptr;
  return found;
}

absl::Status Model::CheckSize(const std::string& name, size_t size,
                              const program::HostTensor& variable) const {
  const TapeValue* host = HostTypeOf(name);
  const size_t wanted = host == nullptr ? variable.host_type().bytes() : HostBytes(*host);
  return size == wanted ? absl::OkStatus() : WrongSize(absl::StrCat("'", name, "'"), size, wanted);
}

bool Model::IsNarrowed(const std::string& name, const program::HostTensor& variable) const {
  const TapeValue* host = HostTypeOf(name);
  return host != nullptr && HostBytes(*host) != variable.host_type().bytes();
}

absl::Status Model::WriteState(absl::Span<const ConstState> state) {
  VPOD_RETURN_IF_ERROR(CheckLoaded());
  std::vector<session::WriteFrom> all;
  std::deque<std::string> narrowed;  // what of it needs memory of its own
  for (const auto& [name, bytes] : state) {
    VPOD_ASSIGN_OR_RETURN(const program::HostTensor* variable, FindState(name));
    if (variable == nullptr) continue;
    VPOD_RETURN_IF_ERROR(CheckSize(name, bytes.size, *variable));
    all.push_back({name, bytes.data, bytes.size});
    if (!IsNarrowed(name, *variable)) continue;
    std::string& narrow = narrowed.emplace_back(variable->host_type().bytes(), '\0');
    VPOD_RETURN_IF_ERROR(ToDevice(absl::StrCat("'", name, "'"), HostTypeOf(name)->type,
                                  {static_cast<const char*>(bytes.data), bytes.size},
                                  reinterpret_cast<std::byte*>(narrow.data())));
    all.back().data = narrow.data();
    all.back().bytes = narrow.size();
  }
  return session_->WriteState(all);
}

absl::Status Model::ReadState(absl::Span<const MutableState> state) {
  VPOD_RETURN_IF_ERROR(CheckLoaded());
  struct Narrow {
    std::string bytes;
    int host_type = 0;
    void* to = nullptr;
  };
  std::vector<session::ReadInto> all;
  std::deque<Narrow> narrowed;
  for (const auto& [name, bytes] : state) {
    VPOD_ASSIGN_OR_RETURN(const program::HostTensor* variable, FindState(name));
    if (variable == nullptr) continue;
    VPOD_RETURN_IF_ERROR(CheckSize(name, bytes.size, *variable));
    all.push_back({name, bytes.data, bytes.size});
    if (!IsNarrowed(name, *variable)) continue;
    Narrow& narrow = narrowed.emplace_back(Narrow{std::string(variable->host_type().bytes(), '\0'),
                                                  HostTypeOf(name)->type, bytes.data});
    all.back().data = narrow.bytes.data();
    all.back().bytes = narrow.bytes.size();
  }
  VPOD_RETURN_IF_ERROR(session_->ReadState(all));
  for (const Narrow& narrow : narrowed) ToHost(narrow.host_type, narrow.bytes, narrow.to);
  return absl::OkStatus();
}

std::map<std::string, program::TensorType> Model::Variables() const {
  std::map<std::string, program::TensorType> variables;
  if (!compiled_) return variables;
  for (const program::HostTensor& variable : compiled_->executable->host_tensors()) {
    if (!absl::StartsWith(variable.name, kGroupPrefix))
      variables.emplace(variable.name, variable.host_type());
  }
  return variables;
}

absl::Status Model::SetHyperParameters(const OptimizerOptions& optimizer) {
  VPOD_RETURN_IF_ERROR(CheckLoaded());
  const compiler::ProgramSpec& spec = options_.programs.front();
  if (!spec.loss) return absl::FailedPreconditionError("the model does not train");
  const size_t groups = spec.groups.size() + 1;
  if (optimizer.groups.size() != groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("the optimiser has ", optimizer.groups.size(),
                     " parameter groups, and the model was compiled with ", groups));
  }
  for (size_t group = 0; group < groups; ++group) {
    // The hyper-parameters of a group that has nothing to train are nowhere.
    if (!compiled_->executable->FindVariable(compiler::HyperParametersName(0, group)).ok() &&
        group > 0 && spec.groups[group - 1].variables.empty()) {
      continue;
    }
    VPOD_RETURN_IF_ERROR(session_->SetHyperParameters(optimizer.groups[group].optimizer, group));
  }
  if (!optimizer.loss_scale || !spec.loss_scale) return absl::OkStatus();
  const float scale = *optimizer.loss_scale;
  return session_->WriteFloats(compiler::kLossScaleName, {&scale, 1});
}

}  // namespace vpod::poptorch
