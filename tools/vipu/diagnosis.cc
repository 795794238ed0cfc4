// Tests of clusters, events, faults.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "device/arch/soc_error.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "tools/vipu/show.h"
#include "tools/vipu/tables.h"

namespace vpod::tools {
namespace {

// A fault that can be injected, and the flags that say where and how.
struct FaultKind {
  const char* name;
  vipuagent::Fault fault;
  FlagList needs;
  const char* meaning;
};

const std::vector<FaultKind>& Faults() {
  static const std::vector<FaultKind> faults = {
      {"link-down", vipuagent::LINK_DOWN, {&kLink}, "the link carries nothing"},
      {"link-corrupts",
       vipuagent::LINK_CORRUPTS,
       {&kLink},
       "the link flips bits of what it carries"},
      {"link-errors", vipuagent::LINK_ERRORS, {&kLink, &kRate}, "the link corrects errors"},
      {"cable-swapped",
       vipuagent::CABLE_SWAPPED,
       {&kLink},
       "its cable leads to another port than it should"},
      {"ipu-error", vipuagent::IPU_ERROR, {&kIpu, &kError}, "an error in the IPU's status"},
      {"over-temperature",
       vipuagent::OVER_TEMPERATURE,
       {&kIpu},
       "sensors read above the limit, the clock is throttled"},
      {"memory-parity", vipuagent::MEMORY_PARITY, {&kIpu}, "a parity error in tile memory"},
      {"agent-hang", vipuagent::AGENT_HANG, {&kSeconds}, "the agent answers nothing"},
  };
  return faults;
}

// The fault that the flags ask for, with exactly the flags that it needs.
absl::StatusOr<vipuagent::Fault> ChosenFault(const Arguments& arguments) {
  FlagList allowed;
  vipuagent::Fault fault = vipuagent::FAULT_NONE;
  std::string what = "--clear";
  if (arguments.Switch(kClear) == arguments.Has(kFault))
    return UsageError("inject agent needs either --fault or --clear.");
  if (arguments.Has(kFault)) {
    const auto kind = std::find_if(Faults().begin(), Faults().end(), [&](const FaultKind& item) {
      return arguments.Text(kFault) == item.name;
    });
    if (kind == Faults().end()) {
      return UsageError(absl::StrCat("Flag --fault is one of ", kFault.value, ", not '",
                                     arguments.Text(kFault), "'."));
    }
    what = absl::StrCat("Fault ", kind->name);
    fault = kind->fault;
    allowed = kind->needs;
    for (const Flag* flag : allowed) {
      if (!arguments.Has(*flag))
        return UsageError(absl::StrCat(what, " needs --", flag->name, "."));
    }
  } else {
    allowed = {&kLink};
  }
  for (const Flag* flag : {&kLink, &kIpu, &kError, &kRate, &kSeconds}) {
    if (arguments.Has(*flag) && std::find(allowed.begin(), allowed.end(), flag) == allowed.end())
      return UsageError(absl::StrCat(what, " does not take --", flag->name, "."));
  }
  if (arguments.Has(kError) && !arch::IsSocError(arguments.Text(kError))) {
    return UsageError(absl::StrCat("Flag --error is one of ", kError.value, ", not '",
                                   arguments.Text(kError), "'."));
  }
  return fault;
}

absl::StatusOr<vipuadmin::ListEventsRequest> EventsRequest(const Arguments& arguments) {
  vipuadmin::ListEventsRequest request;
  VPOD_ASSIGN_OR_RETURN(const uint32_t limit, arguments.Number(kLimit, 0));
  request.set_limit(limit);
  const std::string object = arguments.Text(kObject);
  if (!object.empty() && !absl::StrContains(object, '/')) {
    return UsageError(
        absl::StrCat("Invalid --object '", object, "': expected <noun>/<id>, e.g. partition/p1."));
  }
  request.set_object(absl::StrReplaceAll(object, {{"/", " "}}));
  return request;
}

// Events as they come, until the controller goes or the user interrupts. The API has no stream of
// them, so it is asked twice a second.
absl::Status FollowEvents(const Call& call, vipuadmin::ListEventsRequest request) {
  VPOD_ASSIGN_OR_RETURN(const ListOptions options, ListOptionsOf(call.arguments));
  const bool json = options.format == ListFormat::kJson;
  const bool is_chosen = options.is_watch() || !options.sort_by.empty() || !options.filters.empty();
  if (is_chosen || (options.format != ListFormat::kTable && !json)) {
    return UsageError(
        "Flag --follow goes with --no-headers or -o json, but with no other flag of lists.");
  }
  if (!json && options.headings) call.out << EventHead();
  while (true) {
    VPOD_ASSIGN_OR_RETURN(const auto events, call.client.ListEvents(request));
    for (const auto& event : events) {
      call.out << (json ? ToJson(event).dump() + "\n" : EventRow(event));
      request.set_after(event.number());
    }
    call.out.flush();
    if (!call.out) return absl::OkStatus();  // nobody reads any more
    request.set_limit(0);
    // There may be more where these came from.
    if (events.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

}  // namespace

std::string FaultsText() {
  std::string text = "Faults:\n";
  for (const FaultKind& kind : Faults()) {
    std::string flags;
    for (const Flag* flag : kind.needs) absl::StrAppend(&flags, " --", flag->name);
    absl::StrAppendFormat(&text, "  %-17s%-16s  %s\n", kind.name, flags, kind.meaning);
  }
  return text +
         "\nThey show in all tools until they are cleared, or the agent is reset ('reset agent').\n"
         "A partition with a failed IPU or link is in ERROR: gc-reset refuses it, and 'reset\n"
         "partition' helps; a SYNC or GW-Link, which all IPUs of the machine share, needs a\n"
         "partition that has all of them, or 'reset agent'. A memory-parity error is cleared by\n"
         "gc-reset -p.";
}

absl::Status TestCluster(const Call& call) {
  const bool json = call.arguments.Switch(kShowJson);
  vipuadmin::TestClusterRequest request;
  request.set_id(call.id);
  request.set_force(call.arguments.Switch(kForce));
  for (const Flag* flag :
       {&kTestVersions, &kTestCabling, &kTestSync, &kTestLinks, &kTestTraffic, &kTestGwLinks}) {
    if (call.arguments.Switch(*flag)) request.add_tests(flag->name);
  }
  std::vector<vipuadmin::TestClusterReply> results;
  const absl::Status status = call.client.TestCluster(request, [&](const auto& result) {
    // A refusal comes before the first row and leaves no heading behind.
    if (!json)
      call.out << (results.empty() ? TestHead(call.id) : "") << TestRow(result) << std::flush;
    results.push_back(result);
  });
  if (!json && !results.empty()) call.out << TestTail(results);
  VPOD_RETURN_IF_ERROR(status);
  if (json) call.out << ToJson(results).dump(2) << "\n";
  const auto failed = std::count_if(results.begin(), results.end(), [](const auto& result) {
    return result.passed() != result.expected();
  });
  const auto ran = std::count_if(results.begin(), results.end(),
                                 [](const auto& result) { return result.expected() > 0; });
  if (failed == 0) return absl::OkStatus();
  const auto failure = absl::AbortedError(absl::StrCat(failed, " of ", ran, " tests failed."));
  return json ? AfterJson(failure) : failure;
}

absl::Status BackUp(const Call& call) {
  // Before the controller is asked: a backup is not to be lost to the next one.
  std::error_code error;  // of a directory that is closed to us, which writing the file names
  if (std::filesystem::exists(std::filesystem::symlink_status(call.id, error)))
    return absl::AlreadyExistsError("The file exists already; name a new one.");
  VPOD_ASSIGN_OR_RETURN(const auto backup, call.client.Backup());
  const auto& [bytes, summary] = backup;
  VPOD_RETURN_IF_ERROR(base::ReplaceFile(call.id, bytes, 0600));
  if (!call.arguments.Switch(kShowJson)) {
    call.out << summary.bytes() << " bytes, " << summary.partitions()
             << " partitions, events up to " << summary.last_event() << ", SHA-256 "
             << summary.sha256() << "\n";
  }
  return Done(call, absl::OkStatus());
}

absl::Status ListEvents(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto request, EventsRequest(call.arguments));
  if (call.arguments.Switch(kFollow)) return FollowEvents(call, request);
  return ShowList(
      call, [&](const ListOptions&) { return call.client.ListEvents(request); }, EventsListing);
}

absl::Status InjectFault(const Call& call) {
  vipuadmin::InjectRequest request;
  request.set_agent_id(call.id);
  vipuagent::InjectRequest& fault = *request.mutable_fault();
  VPOD_ASSIGN_OR_RETURN(const vipuagent::Fault kind, ChosenFault(call.arguments));
  VPOD_ASSIGN_OR_RETURN(const uint32_t ipu, call.arguments.Number(kIpu, 0));
  VPOD_ASSIGN_OR_RETURN(const double rate, call.arguments.Real(kRate, 0));
  VPOD_ASSIGN_OR_RETURN(const double seconds, call.arguments.Real(kSeconds, 0));
  fault.set_fault(kind);
  fault.set_link(call.arguments.Text(kLink));
  fault.set_pcie_id(ipu);
  fault.set_error(call.arguments.Text(kError));
  fault.set_rate(rate);
  fault.set_seconds(seconds);
  return Done(call, call.client.Inject(request));
}

}  // namespace vpod::tools
