#include "server/rpc/log_budget.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace vpod::rpc {
namespace {

constexpr size_t kMostUsersNamed = 5;

// The value of the line's field user="…"; empty without one.
std::string UserOf(absl::string_view line) {
  constexpr absl::string_view kField = " user=\"";
  const size_t at = line.find(kField);
  if (at == absl::string_view::npos) return "";
  line.remove_prefix(at + kField.size());
  return std::string(line.substr(0, line.find('"')));
}

}  // namespace

bool LogBudget::Take(absl::string_view line, Clock::time_point now) {
  Advance(now);
  const bool refused = absl::StartsWith(line, "refused ");
  // A name that a caller only claims, in the field claimed_user, is nobody's: otherwise whoever
  // claims a name could use up the budget of its user.
  const std::string user = UserOf(line);
  const bool written =
      refused         ? Spend("refused " + user, kEachUser, "refused", kAllRefused, line.size())
      : !user.empty() ? Spend("user " + user, kEachUser, "users", kAllUsers, line.size())
                      : Spend("daemon", kDaemon, "all of daemon", kDaemon, line.size());
  if (written) return true;
  ++present_.lines_left_out;
  present_.bytes_left_out += line.size();
  if (!user.empty() && present_.users_left_out.size() <= kMostUsersNamed)
    present_.users_left_out.insert(user);
  return false;
}

bool LogBudget::Spend(const std::string& account, uint64_t limit, const std::string& sum,
                      uint64_t sum_limit, uint64_t bytes) {
  uint64_t& of_sum = present_.bytes[sum];
  if (of_sum + bytes > sum_limit) return false;  // before an account is made for a new name
  uint64_t& of_account = present_.bytes[account];
  if (of_account + bytes > limit) return false;
  of_sum += bytes;
  of_account += bytes;
  return true;
}

std::string LogBudget::LeftOut(Clock::time_point now) {
  Advance(now);
  const Minute minute = std::exchange(before_, {});
  if (minute.lines_left_out == 0) return "";
  std::string users = absl::StrJoin(minute.users_left_out, " ");
  if (minute.users_left_out.size() > kMostUsersNamed) absl::StrAppend(&users, " …");
  return absl::StrCat("the log's limits left out lines=", minute.lines_left_out,
                      " bytes=", minute.bytes_left_out, " of users=\"", users, "\"");
}

void LogBudget::Advance(Clock::time_point now) {
  if (now - present_.begin < std::chrono::minutes(1)) return;
  if (present_.lines_left_out > 0) {
    before_ = std::move(present_);
  }
  present_ = {};
  present_.begin = now;
}

}  // namespace vpod::rpc
