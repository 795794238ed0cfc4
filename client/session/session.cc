#include "client/session/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/planned_program.h"
#include "client/engine_options/engine_options.h"
#include "client/profile/profile.h"
#include "client/sdk_log/sdk_log.h"
#include "client/session/leave_for_plan.h"
#include "client/session/narrowing.h"
#include "client/session/npz.h"
#include "client/session/profiles.h"
#include "client/session/program_log.h"
#include "client/session/shards.h"
#include "device/base/status.h"
#include "device/program/float_codec.h"
#include "device/program/ops/collective.h"

namespace vpod::session {
namespace {

using program::v1::FLOAT16;
using program::v1::FLOAT32;

// Texts are made only if they are shown: a run may take microseconds.
template <class... Parts>
void LogEngine(LogLevel level, const Parts&... parts) {
  if (SdkLogs(LogModule::kEngine, level)) SdkLog(LogModule::kEngine, level, absl::StrCat(parts...));
}

void LogLostRuns(const absl::Status& recorded) {
  if (!recorded.ok()) LogEngine(LogLevel::kErr, recorded.message());
}

absl::Status CheckCount(absl::string_view variable, const program::TensorType& type,
                        size_t values) {
  if (static_cast<size_t>(type.elements()) == values) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("variable '", variable, "' is ", type.ToString(),
                                                 "; ", values, " values given"));
}

// The host reads and writes variables as wholes: an instance has all parts.
absl::Status CheckShards(const Device& device, const program::Executable& executable) {
  for (const program::HostTensor& variable : executable.host_tensors()) {
    if (device.local_replicas() % variable.shards == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable '", variable.name, "' is shared out among ", variable.shards,
                     " replicas, and this instance has ", device.local_replicas(),
                     ": tensor_shards must divide the replicas of each instance"));
  }
  return absl::OkStatus();
}

// Whether a variable is not of the model: files from elsewhere do not have it.
bool IsOwn(absl::string_view variable) {
  return compiler::IsOptimizerState(variable) || absl::StartsWith(variable, graph::kRandomPrefix);
}

constexpr int kInputsBeforeState = 5;  // of optimisers

constexpr uint64_t kNoOffset = ~uint64_t{0};

// Whether the state of an update is as an optimiser has it; `counter` is the offset of the number
// of updates.
bool HasStateOf(const program::v1::Ipu& ipu, const program::v1::Instruction& update,
                const compiler::OptimizerStep& step, uint64_t counter) {
  const auto tensor = [&](int input) -> const program::v1::Tensor& {
    return ipu.tensors(static_cast<int>(update.inputs(input)));
  };
  if (update.inputs_size() >= kInputsBeforeState &&
      (tensor(kInputsBeforeState - 1).offset() == counter) != step.counts_updates)
    return false;
  // SGD with velocities may go on with a momentum of 0.
  if (step.state.empty() && update.has_sgd()) return true;
  if (kInputsBeforeState + static_cast<int>(step.state.size()) != update.inputs_size())
    return false;
  for (int i = kInputsBeforeState; i < update.inputs_size(); ++i) {
    const compiler::OptimizerState& state = step.state[static_cast<size_t>(i - kInputsBeforeState)];
    if (tensor(i).type() != state.type()) return false;
  }
  return true;
}

absl::Status CheckNothingIsMissing(const program::Executable& executable, const Arrays& arrays) {
  constexpr size_t kShown = 3;
  std::vector<std::string> missing;
  for (const program::HostTensor& variable : executable.host_tensors()) {
    if (!IsOwn(variable.name) && !arrays.contains(variable.name))
      missing.push_back(absl::StrCat("'", variable.name, "'"));
  }
  if (missing.empty()) return absl::OkStatus();
  const auto shown = absl::MakeConstSpan(missing).first(std::min(missing.size(), kShown));
  std::string names = absl::StrJoin(shown, ", ");
  if (missing.size() > kShown) absl::StrAppend(&names, " and ", missing.size() - kShown, " more");
  return absl::InvalidArgumentError(
      absl::StrCat("the file lacks ", missing.size() == 1 ? "variable " : "variables ", names,
                   "; allow_missing keeps what the program has"));
}

// Without what the compiler's warning has said: where it does not fit, and what to try.
std::string Refusal(const absl::Status& refused, const compiler::Compiled& compiled) {
  const std::string whole(refused.message());
  const bool was_logged = !compiled.fits && SdkLogs(LogModule::kEngine, LogLevel::kWarn);
  return was_logged ? whole.substr(0, whole.find(" On IPU ")) : whole;
}

}  // namespace

Session::Session(std::unique_ptr<Device> device,
                 std::shared_ptr<const program::Executable> executable)
    : device_(std::move(device)),
      executable_(std::move(executable)),
      layout_(executable_->proto(), device_->local_replicas()) {}

Session::~Session() {
  if (profiler_ != nullptr) LogLostRuns(profiler_->Finish());
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(std::unique_ptr<Device>&& device,
                                                         const compiler::Compiled& compiled,
                                                         const LoadOptions& options,
                                                         std::optional<EngineOptions> given) {
  if (compiler::IsPlannedProgram()) return LeaveForPlanQuietly(*compiled.executable);
  VPOD_RETURN_IF_ERROR(device->CheckProcess());
  // The engine would refuse it, too, when a profile has been written.
  VPOD_RETURN_IF_ERROR(
      program::CheckTotalReplicas(compiled.executable->proto(), device->job_part().total_replicas));
  VPOD_RETURN_IF_ERROR(CheckSdkLog());
  if (!given) {
    VPOD_ASSIGN_OR_RETURN(given, ReadEngineOptions());
  }
  const EngineOptions& engine = *given;
  WarnOfUnknown(engine);
  LogExecutable(*device, *compiled.executable);
  VPOD_ASSIGN_OR_RETURN(auto profiler, StartProfiles(compiled, engine,
                                                     {.is_model = device->is_model(),
                                                      .clock_hz = device->clock_hz(),
                                                      .part = device->job_part()}));
  VPOD_RETURN_IF_ERROR(CheckShards(*device, *compiled.executable));
  const absl::Status loaded = device->Load(
      compiled.executable, {.check_finite = engine.check_finite || options.check_finite,
                            .sharing = engine.sharing && options.sharing});
  if (absl::IsResourceExhausted(loaded) && profiler != nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Refusal(loaded, compiled), " Profile saved to: ", profiler->PathOf(0)));
  }
  VPOD_RETURN_IF_ERROR(loaded);
  std::unique_ptr<Session> session(new Session(std::move(device), compiled.executable));
  session->profiler_ = std::move(profiler);
  for (const auto& [name, initial] : compiled.initial_values)
    VPOD_RETURN_IF_ERROR(session->WriteBytes(name, initial.Bytes()));
  return session;
}

absl::Status Session::CheckProcess() const { return device_->CheckProcess("session"); }

absl::StatusOr<absl::Span<std::byte>> Session::StreamOf(absl::string_view name, uint32_t replica,
                                                        uint32_t slot, ElementType element) {
  VPOD_RETURN_IF_ERROR(CheckProcess());
  VPOD_ASSIGN_OR_RETURN(uint32_t stream, executable_->FindStream(name));
  const auto& declared = executable_->proto().streams(static_cast<int>(stream));
  if (replica >= layout_.replicas() || slot >= program::kStreamSlots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream '", name, "' has ", layout_.replicas(), " replicas and ", program::kStreamSlots,
        " slots; replica ", replica, ", slot ", slot, " was asked for"));
  }
  if (!element.Reads(declared.type())) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", name, "' has elements of ",
                                                   program::Name(declared.type()), ", not ",
                                                   element.name()));
  }
  const uint64_t bytes = layout_.TransferBytes(stream) * layout_.Transfers(stream);
  LogEngine(LogLevel::kTrace, "Connecting stream '", name, "' of replica ", replica, ", slot ",
            slot, ": ", bytes, " bytes");
  return absl::MakeSpan(device_->Slot(slot) + layout_.Offset(stream, replica, 0), bytes);
}

template <class T>
absl::Status Session::WriteNarrowed(absl::string_view name, uint32_t replica,
                                    absl::Span<const T> values, uint32_t slot) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t stream, executable_->FindStream(name));
  const program::v1::DataType type = executable_->proto().streams(static_cast<int>(stream)).type();
  const uint64_t size = program::SizeOf(type);
  VPOD_ASSIGN_OR_RETURN(const auto bytes, StreamBytes(name, replica, slot));
  if (bytes.size() != values.size() * size) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", name, "' moves ",
                                                   bytes.size() / size, " elements in a run; ",
                                                   values.size(), " values given"));
  }
  return Narrow(absl::StrCat("stream '", name, "'"), values, type, bytes.data());
}

absl::Status Session::WriteStream(absl::string_view name, uint32_t replica,
                                  absl::Span<const int64_t> values, uint32_t slot) {
  return WriteNarrowed(name, replica, values, slot);
}
absl::Status Session::WriteStream(absl::string_view name, uint32_t replica,
                                  absl::Span<const double> values, uint32_t slot) {
  return WriteNarrowed(name, replica, values, slot);
}

absl::StatusOr<base::Cycles> Session::Run(absl::string_view program, uint32_t slot) {
  VPOD_RETURN_IF_ERROR(CheckProcess());
  VPOD_ASSIGN_OR_RETURN(uint32_t index, executable_->FindProgram(program));
  LogEngine(LogLevel::kDebug, "Running program '", program, "' with slot ", slot);
  VPOD_ASSIGN_OR_RETURN(const base::Cycles cycles, device_->Run(index, slot));
  LogEngine(LogLevel::kDebug, "Program '", program, "' took ", cycles.value(), " cycles");
  if (profiler_ != nullptr) LogLostRuns(profiler_->AddRun(index, cycles));
  return cycles;
}

absl::StatusOr<std::string> Session::ReadBytes(absl::string_view variable, uint32_t replica) {
  VPOD_RETURN_IF_ERROR(CheckProcess());
  LogEngine(LogLevel::kTrace, "Reading variable '", variable, "' of replica ", replica);
  VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(variable));
  if (declared->shards <= 1 || replica >= device_->local_replicas())
    return device_->ReadVariable(variable, replica);
  // The replicas that have the parts follow each other, and are all of this instance.
  const uint32_t first = replica / declared->shards * declared->shards;
  std::string parts;
  for (uint32_t part = 0; part < declared->shards; ++part) {
    VPOD_ASSIGN_OR_RETURN(const std::string bytes, device_->ReadVariable(variable, first + part));
    parts += bytes;
  }
  return JoinShards(*declared, std::move(parts));
}

absl::Status Session::WriteBytes(absl::string_view variable, absl::string_view bytes) {
  VPOD_RETURN_IF_ERROR(CheckProcess());
  LogEngine(LogLevel::kTrace, "Writing variable '", variable, "' (", bytes.size(), " bytes)");
  VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(variable));
  if (declared->shards <= 1) return device_->WriteVariable(variable, bytes);
  const uint64_t size = declared->type.bytes();
  if (bytes.size() != size * declared->shards) {
    return absl::InvalidArgumentError(absl::StrCat("variable '", variable, "' has ",
                                                   size * declared->shards, " bytes; ",
                                                   bytes.size(), " given"));
  }
  const std::string parts = CutShards(*declared, std::string(bytes));
  for (uint32_t replica = 0; replica < device_->local_replicas(); ++replica) {
    const uint64_t part = replica % declared->shards;
    VPOD_RETURN_IF_ERROR(device_->WriteVariable(
        variable, absl::string_view(parts).substr(part * size, size), replica));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Session::ReadFloats(absl::string_view variable,
                                                       uint32_t replica) {
  VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(variable));
  VPOD_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(variable, replica));
  const program::TensorType& type = declared->host_type();
  return program::DecodeFloats(bytes, type.type);
}

absl::Status Session::WriteFloats(absl::string_view variable, absl::Span<const float> values) {
  VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(variable));
  const program::TensorType& type = declared->host_type();
  VPOD_RETURN_IF_ERROR(CheckCount(variable, type, values.size()));
  for (float value : values) {
    const absl::Status fits = program::CheckValue(value, type.type);
    if (!fits.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable '", variable, "': ", fits.message()));
    }
  }
  return WriteBytes(variable, program::EncodeFloats(values, type.type));
}

template <class T>
absl::Status Session::WriteNarrowed(absl::string_view variable, absl::Span<const T> values) {
  VPOD_ASSIGN_OR_RETURN(const auto* declared, executable_->FindVariable(variable));
  const program::TensorType& type = declared->host_type();
  VPOD_RETURN_IF_ERROR(CheckCount(variable, type, values.size()));
  std::string bytes(type.bytes(), '\0');
  VPOD_RETURN_IF_ERROR(Narrow(absl::StrCat("variable '", variable, "'"), values, type.type,
                              reinterpret_cast<std::byte*>(bytes.data())));
  return WriteBytes(variable, bytes);
}

absl::Status Session::WriteVariable(absl::string_view name, absl::Span<const int64_t> values) {
  return WriteNarrowed(name, values);
}
absl::Status Session::WriteVariable(absl::string_view name, absl::Span<const double> values) {
  return WriteNarrowed(name, values);
}

absl::Status Session::Save(const std::string& path) {
  Arrays arrays;
  for (const program::HostTensor& variable : executable_->host_tensors()) {
    VPOD_ASSIGN_OR_RETURN(std::string bytes, ReadBytes(variable.name, /*replica=*/0));
    arrays[variable.name] = {variable.host_type(), std::move(bytes)};
  }
  return WriteNpz(path, arrays);
}

absl::Status Session::Load(const std::string& path, const LoadFileOptions& options) {
  VPOD_ASSIGN_OR_RETURN(Arrays arrays, ReadNpz(path));
  std::erase_if(arrays, [&](const auto& array) {
    return IsOwn(array.first) && !executable_->FindVariable(array.first).ok();
  });
  for (auto& [name, array] : arrays) {
    const auto variable = executable_->FindVariable(name);
    if (!variable.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": array '", name, "': ", variable.status().message()));
    }
    const program::TensorType& type = (*variable)->host_type();
    if (type.type == FLOAT16 && array.type == program::TensorType{FLOAT32, type.dims})
      array = {type, program::EncodeFloats(program::DecodeFloats(array.bytes, FLOAT32), FLOAT16)};
    if (array.type == type) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": array '", name, "' is ",
                                                   array.type.ToString(), ", the variable is ",
                                                   type.ToString()));
  }
  if (!options.allow_missing) {
    const absl::Status whole = CheckNothingIsMissing(*executable_, arrays);
    if (!whole.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", whole.message()));
  }
  for (const auto& [name, array] : arrays) VPOD_RETURN_IF_ERROR(WriteBytes(name, array.bytes));
  return absl::OkStatus();
}

std::vector<std::string> Session::HyperParameterVariables(size_t group) const {
  std::vector<std::string> names;
  for (uint32_t ipu = 0; ipu < executable_->ipus_per_replica(); ++ipu) {
    std::string name = compiler::HyperParametersName(ipu, group);
    if (executable_->FindVariable(name).ok()) names.push_back(std::move(name));
  }
  return names;
}

absl::Status Session::SetLearningRate(float rate, size_t group) {
  VPOD_RETURN_IF_ERROR(compiler::CheckLearningRate(rate));
  VPOD_RETURN_IF_ERROR(FindUpdate(group).status());
  for (const std::string& name : HyperParameterVariables(group)) {
    VPOD_ASSIGN_OR_RETURN(std::vector<float> values, ReadFloats(name));
    values[0] = rate;
    VPOD_RETURN_IF_ERROR(WriteFloats(name, values));
  }
  return absl::OkStatus();
}

absl::StatusOr<Session::CompiledUpdate> Session::FindUpdate(size_t group) const {
  constexpr int kHyperParameters = 2;  // input of every optimiser
  for (uint32_t i = 0; i < executable_->ipus_per_replica(); ++i) {
    const auto variable = executable_->FindVariable(compiler::HyperParametersName(i, group));
    if (!variable.ok()) continue;
    const program::v1::Ipu& ipu = executable_->proto().ipus(static_cast<int>(i));
    const uint64_t place = (*variable)->offset;
    for (const auto& function : ipu.functions()) {
      for (const auto& step : function.instructions()) {
        if (*compiler::OptimizerName(step) == '\0') continue;
        const auto vector = static_cast<int>(step.inputs(kHyperParameters));
        if (ipu.tensors(vector).offset() == place) return CompiledUpdate{&step, i};
      }
    }
  }
  return absl::InvalidArgumentError(
      group == 0 ? "no program of the executable trains variables without a group"
                 : absl::StrCat("no program of the executable trains parameter group ", group));
}

absl::Status Session::SetHyperParameters(const compiler::Optimizer& optimizer, size_t group) {
  VPOD_RETURN_IF_ERROR(compiler::CheckHyperParameters(optimizer));
  VPOD_ASSIGN_OR_RETURN(const CompiledUpdate found, FindUpdate(group));
  const program::v1::Instruction* update = found.instruction;
  program::v1::Instruction compiled = *update;
  if (update->has_lamb_moments()) {  // the first of the two steps that have LAMB's attributes
    compiled.mutable_lamb()->set_gradient_scale(update->lamb_moments().gradient_scale());
    compiled.mutable_lamb()->set_maximize(update->lamb_moments().maximize());
  }
  compiled.clear_inputs();
  compiled.clear_outputs();
  compiled.clear_rounding();
  // The scale of the gradients follows from the program, not from the optimiser.
  const auto without_scale = [](program::v1::Instruction step) {
    const auto* kind = step.GetReflection()->GetOneofFieldDescriptor(
        step, step.GetDescriptor()->FindOneofByName("attributes"));
    auto* attributes = step.GetReflection()->MutableMessage(&step, kind);
    attributes->GetReflection()->ClearField(
        attributes, attributes->GetDescriptor()->FindFieldByName("gradient_scale"));
    return step.SerializeAsString();
  };
  const compiler::OptimizerStep step = compiler::StepOf(optimizer, 1);
  const char *was = compiler::OptimizerName(compiled), *is = compiler::NameOf(optimizer);
  if (std::strcmp(was, is) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program was compiled for ", was, ", not for ", is));
  }
  const int state = std::max(update->inputs_size() - kInputsBeforeState, 0);
  if (static_cast<int>(step.state.size()) > state) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the program was compiled for ", was, " without the state that momentum or amsgrad needs"));
  }
  const program::v1::Ipu& ipu = executable_->proto().ipus(static_cast<int>(found.ipu));
  const auto counter = executable_->FindVariable(compiler::OptimizerStepName(found.ipu));
  if (!HasStateOf(ipu, *update, step, counter.ok() ? (*counter)->offset : kNoOffset) ||
      without_scale(compiled) != without_scale(step.instruction)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the flags of ", was, " must be as the program was compiled with them"));
  }
  for (const std::string& name : HyperParameterVariables(group))
    VPOD_RETURN_IF_ERROR(WriteFloats(name, compiler::HyperParameters(optimizer)));
  return absl::OkStatus();
}

}  // namespace vpod::session
