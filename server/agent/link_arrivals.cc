#include "server/agent/link_arrivals.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/random_id.h"
#include "device/base/status.h"

namespace vpod::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{1};    // for data that were sent
constexpr std::chrono::seconds kForgotten{10};  // the sender asks long before, if at all

}  // namespace

absl::StatusOr<std::string> LinkArrivals::Expect(size_t bytes) {
  if (bytes < 1 || bytes > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes is ", bytes, ", must be 1 to ", kMostBytes));
  }
  VPOD_ASSIGN_OR_RETURN(shm::Segment memory, shm::Segment::Create(bytes));
  std::string name = base::RandomId();
  const Clock::time_point now = Clock::now();
  base::MutexLock lock(mutex_);
  std::erase_if(arrivals_,
                [&](const auto& item) { return now - item.second.expected > kForgotten; });
  if (arrivals_.size() >= kMost)
    return absl::ResourceExhaustedError(absl::StrCat(kMost, " tests of links are under way"));
  arrivals_[name] = {std::make_shared<shm::Segment>(std::move(memory)), now};
  return name;
}

fabric::Landing LinkArrivals::Land(absl::string_view name, size_t bytes) {
  base::MutexLock lock(mutex_);
  const auto it = arrivals_.find(name);
  if (it == arrivals_.end() || it->second.landing || it->second.memory->size() != bytes) return {};
  it->second.landing = true;
  const auto landed = [this, name = it->first, memory = it->second.memory](absl::Status status) {
    base::MutexLock lock(mutex_);
    const auto arrival = arrivals_.find(name);
    if (arrival != arrivals_.end()) arrival->second.landed = status.ok();
    changed_.notify_all();
  };
  return {it->second.memory->data(), landed};
}

absl::StatusOr<std::shared_ptr<shm::Segment>> LinkArrivals::Take(const std::string& name) {
  base::MutexLock lock(mutex_);
  auto it = arrivals_.find(name);
  if (it == arrivals_.end()) return absl::NotFoundError("unexpected data of a link test");
  const bool landed = lock.WaitUntil(changed_, Clock::now() + kPatience, [&] {
    it = arrivals_.find(name);
    return it == arrivals_.end() || it->second.landed;
  });
  if (!landed || it == arrivals_.end()) return absl::UnavailableError("nothing arrived");
  std::shared_ptr<shm::Segment> memory = std::move(it->second.memory);
  arrivals_.erase(it);
  return memory;
}

}  // namespace vpod::agent
