#include "client/session/program_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/sdk_log/sdk_log.h"
#include "device/program/ops/collective.h"

namespace vpod::session {
namespace {

namespace v1 = program::v1;

std::string Members(const v1::ReplicaGroup& group) {
  if (group.kind() == v1::ReplicaGroup::ALL) return "over all replicas";
  return absl::StrCat("over ",
                      group.kind() == v1::ReplicaGroup::CONSECUTIVE ? "consecutive" : "orthogonal",
                      " groups of ", group.size(), " replicas");
}

std::string Describe(const program::Collective& op, const v1::Ipu& ipu) {
  uint64_t bytes = 0;
  for (const uint32_t input : *op.inputs)
    bytes += program::TypeOf(ipu.tensors(static_cast<int>(input))).bytes();
  return absl::StrCat(
      op.def->gcl_name, " ", Members(*op.group), ", tensors: ", op.inputs->size(),
      ", bytes: ", bytes,
      op.reduces() ? absl::StrCat(", operator ", v1::ReduceOperator_Name(op.op)) : "");
}

void LogStreams(const v1::Executable& executable) {
  if (!SdkLogs(LogModule::kEngine, LogLevel::kDebug)) return;
  for (const v1::Stream& stream : executable.streams()) {
    SdkLog(LogModule::kEngine, LogLevel::kDebug,
           absl::StrCat("Stream '", stream.name(), "' ",
                        stream.to_device() ? "from host to IPU " : "to host from IPU ",
                        stream.ipu(), ": ", program::TypeOf(stream).ToString(),
                        ", transfers per run: ", stream.transfers_per_run()));
  }
}

void LogCollectives(const v1::Executable& executable) {
  if (!SdkLogs(LogModule::kGcl, LogLevel::kDebug)) return;
  for (const v1::Program& entry : executable.programs()) {
    for (int ipu = 0; ipu < entry.functions_size(); ++ipu) {
      const auto log = [&](const v1::Instruction& instruction, uint64_t times) {
        const auto collective = program::CollectiveOf(instruction);
        if (!collective.has_value()) return;
        SdkLog(
            LogModule::kGcl, LogLevel::kDebug,
            absl::StrCat("Program '", entry.name(), "', IPU ", ipu, ": ",
                         Describe(*collective, executable.ipus(ipu)), ", times per run: ", times));
      };
      program::ForEachInstruction(executable.ipus(ipu), entry.functions(ipu), log);
    }
  }
}

}  // namespace

void LogExecutable(const Device& device, const program::Executable& executable) {
  const v1::Executable& text = executable.proto();
  if (SdkLogs(LogModule::kTarget, LogLevel::kInfo)) {
    SdkLog(LogModule::kTarget, LogLevel::kInfo,
           absl::StrCat("Target is ", device.name(), ", local replicas: ", device.local_replicas(),
                        ", IPUs per replica: ", executable.ipus_per_replica(),
                        ", clock: ", device.clock_hz() / 1e6, " MHz"));
  }
  if (SdkLogs(LogModule::kEngine, LogLevel::kInfo)) {
    SdkLog(LogModule::kEngine, LogLevel::kInfo,
           absl::StrCat("Loading executable ", executable.hash().substr(0, 12),
                        ", programs: ", text.programs_size(), ", streams: ", text.streams_size(),
                        ", variables: ", text.variables_size()));
  }
  LogStreams(text);
  LogCollectives(text);
}

void WarnOfUnknown(const EngineOptions& options) {
  if (!SdkLogs(LogModule::kEngine, LogLevel::kWarn)) return;
  for (const std::string& name : options.unknown) {
    SdkLog(LogModule::kEngine, LogLevel::kWarn,
           absl::StrCat(options.source, ": there is no option '", name, "'"));
  }
}

}  // namespace vpod::session
