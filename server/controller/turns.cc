#include "server/controller/turns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vpod::controller {

absl::StatusOr<std::unique_ptr<Turns::Turn>> Turns::Await(const std::string& who) {
  base::MutexLock lock(mutex_);
  Party& party = parties_[who];
  if (party.waiting.size() >= most_waiting_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Too many calls of user ", who, " wait; try again."));
  }
  Waiting self;
  party.waiting.push_back(&self);
  ++waiting_;
  Begin();
  lock.Wait(changed_, [&] { return self.begins; });
  return std::make_unique<Turn>(*this);
}

size_t Turns::waiting() {
  base::MutexLock lock(mutex_);
  return waiting_;
}

void Turns::Begin() {
  while (running_ < at_once_ && waiting_ > 0) {
    Party* next = nullptr;
    for (auto& [who, party] : parties_) {
      if (!party.waiting.empty() && (next == nullptr || party.turns < next->turns)) next = &party;
    }
    next->waiting.front()->begins = true;
    next->waiting.pop_front();
    ++next->turns;
    --waiting_;
    ++running_;
  }
  // Without rivals, what each has had is of no matter.
  if (waiting_ == 0) parties_.clear();
  changed_.notify_all();
}

void Turns::End() {
  base::MutexLock lock(mutex_);
  --running_;
  Begin();
}

}  // namespace vpod::controller
