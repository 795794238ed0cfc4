#include "client/session/program_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/sdk_log/sdk_log.h"

namespace vpod::session {
namespace {

namespace v1 = program::v1;

std::string Members(const v1::ReplicaGroup& group) {
  if (group.kind() == v1::ReplicaGroup::ALL) return "over all replicas";
  return absl::StrCat("over ",
                      group.kind() == v1::ReplicaGroup::CONSECUTIVE ? "consecutive" : "orthogonal",
                      " groups of ", group.size(), " replicas");
}

template <class Collective>
std::string Describe(const char* name, const Collective& collective, const v1::Ipu& ipu) {
  uint64_t bytes = 0;
  for (const uint32_t input : collective.inputs())
    bytes += program::TypeOf(ipu.tensors(static_cast<int>(input))).bytes();
  return absl::StrCat(name, " ", Members(collective.group()),
                      ", tensors: ", collective.inputs_size(), ", bytes: ", bytes);
}

// Empty: the instruction is not a collective.
std::string DescribeCollective(const v1::Instruction& instruction, const v1::Ipu& ipu) {
  if (instruction.has_all_reduce()) {
    const v1::AllReduce& step = instruction.all_reduce();
    return absl::StrCat(Describe("AllReduce", step, ipu), ", operator ",
                        v1::ReduceOperator_Name(step.operator_()));
  }
  if (instruction.has_reduce_scatter()) {
    const v1::ReduceScatter& step = instruction.reduce_scatter();
    return absl::StrCat(Describe("ReduceScatter", step, ipu), ", operator ",
                        v1::ReduceOperator_Name(step.operator_()));
  }
  if (instruction.has_all_gather()) return Describe("AllGather", instruction.all_gather(), ipu);
  if (instruction.has_all_to_all()) return Describe("AllToAll", instruction.all_to_all(), ipu);
  if (instruction.has_broadcast()) return Describe("Broadcast", instruction.broadcast(), ipu);
  return "";
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
    for (int ipu = 0; ipu < entry.blocks_size(); ++ipu) {
      const auto log = [&](const v1::Instruction& instruction, uint64_t times) {
        const std::string text = DescribeCollective(instruction, executable.ipus(ipu));
        if (text.empty()) return;
        SdkLog(LogModule::kGcl, LogLevel::kDebug,
               absl::StrCat("Program '", entry.name(), "', IPU ", ipu, ": ", text,
                            ", times per run: ", times));
      };
      program::ForEachInstruction(entry.blocks(ipu).instructions(), 1, log);
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

}  // namespace vpod::session
