#include "server/agent/declared.h"

#include "absl/strings/str_cat.h"
#include "device/arch/soc_error.h"
#include "device/base/device_use.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::agent {
namespace {

constexpr size_t kMaxName = 256;

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (name.size() <= kMaxName) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", name.size(), " bytes, at most ", kMaxName));
}

}  // namespace

absl::StatusOr<ipuof::v1::AttachOpen> Declared(ipuof::v1::AttachOpen open) {
  VPOD_RETURN_IF_ERROR(CheckName("partition_id", open.partition_id()));
  VPOD_RETURN_IF_ERROR(CheckName("job_id", open.job().job_id()));
  for (const std::string& error : open.simulated_error().errors())
    VPOD_RETURN_IF_ERROR(arch::CheckSocError("simulated_error", error));
  if (open.simulated_error().errors_size() > arch::kNumSocErrors) {
    return absl::InvalidArgumentError(absl::StrCat("simulated_error names ",
                                                   open.simulated_error().errors_size(),
                                                   " errors, at most ", arch::kNumSocErrors));
  }
  open.DiscardUnknownFields();
  ipuof::v1::ProcessInfo& process = *open.mutable_process();
  for (std::string* text : {process.mutable_host(), process.mutable_user(),
                            process.mutable_executable(), process.mutable_pid_namespace()})
    *text = base::Printable(*text, kMaxName);
  return open;
}

absl::StatusOr<fabric::v1::JobJoin> Declared(fabric::v1::JobJoin join) {
  VPOD_RETURN_IF_ERROR(CheckName("job_id", join.member().job_id()));
  join.DiscardUnknownFields();
  join.set_process(base::Printable(join.process(), kMaxName));
  return join;
}

std::string PidText(const ipuof::v1::ProcessInfo& process) {
  return base::PidText(process.pid(), process.pid_namespace(), base::PidNamespace());
}

std::string LogText(const ipuof::v1::ProcessInfo& process, absl::string_view user) {
  const bool is_other = base::IsOtherPidNamespace(process.pid_namespace(), base::PidNamespace());
  return absl::StrCat(user.empty() ? "claimed_user=" : "user=",
                      base::QuotedField(user.empty() ? process.user() : user),
                      " pid=", process.pid(), is_other ? " pid_namespace=other" : "",
                      " host=", base::QuotedField(process.host()),
                      " program=", base::QuotedField(process.executable()));
}

}  // namespace vpod::agent
