#include "client/session/profiles.h"

#include "absl/strings/str_cat.h"
#include "client/compiler/weight_transfers.h"
#include "client/pva/schema.h"
#include "client/sdk_log/sdk_log.h"
#include "client/session/program_log.h"
#include "device/base/status.h"

namespace vpod::session {
namespace {

static_assert(kMostRuns <= pva::kMostRows);

profile::ProfileOptions ProfileOptionsFor(const program::Executable& executable,
                                          const EngineOptions& options,
                                          const ProfiledTarget& target) {
  profile::ProfileOptions profile;
  profile.directory = options.report.directory;
  profile.execution = options.report.execution;
  profile.runs = options.report.runs;
  profile.is_model = target.is_model;
  profile.topology.clock_hz = target.clock_hz;
  profile.topology.num_replicas = target.part.total_replicas;
  profile.topology.ipus_per_replica = executable.ipus_per_replica();
  const auto transfers = compiler::PriceWeightTransfers(executable, profile.topology);
  profile.weights_from_host = transfers.from_host;
  profile.weights_to_host = transfers.to_host;
  profile.engine_options = options.all;
  return profile;
}

}  // namespace

absl::StatusOr<std::unique_ptr<profile::Profiler>> StartProfiles(const compiler::Compiled& compiled,
                                                                 const EngineOptions& options,
                                                                 const ProfiledTarget& target) {
  // Replicas are alike: the first instance writes for all. But of a program that is going to be
  // refused each does: the first refusal may end the other instances while they write.
  const bool writes = target.part.first_replica == 0 || !compiled.fits;
  if (!options.report.graph || !writes) return nullptr;
  auto profiler = profile::Profiler::Create(
      compiled.executable, ProfileOptionsFor(*compiled.executable, options, target));
  if (profiler.ok()) return profiler;
  const std::string message =
      absl::StrCat("the profile that ", options.source, " asks for: ", profiler.status().message());
  if (!absl::IsResourceExhausted(profiler.status()))
    return absl::Status(profiler.status().code(), message);
  // A full disk is no reason not to train.
  if (SdkLogs(LogModule::kEngine, LogLevel::kErr)) {
    SdkLog(LogModule::kEngine, LogLevel::kErr,
           absl::StrCat(message, "; the program goes on without it"));
  }
  return nullptr;
}

absl::Status WriteProfiles(const compiler::Compiled& compiled, const ProfiledTarget& target) {
  VPOD_RETURN_IF_ERROR(CheckSdkLog());
  VPOD_ASSIGN_OR_RETURN(const EngineOptions engine, ReadEngineOptions());
  WarnOfUnknown(engine);
  return StartProfiles(compiled, engine, target).status();
}

}  // namespace vpod::session
