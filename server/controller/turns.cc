#include "server/controller/turns.h"

#include <algorithm>

namespace vpod::controller {

absl::StatusOr<std::unique_ptr<Turns::Turn>> Turns::Await(const std::string& who) {
  base::MutexLock lock(mutex_);
  Party& party = parties_[who];
  const size_t of_party = party.waiting.size();
  // Without a name: whoever is refused is not to learn which names exist.
  if (of_party >= most_waiting_ || (of_party > 0 && waiting_ >= most_together_))
    return absl::ResourceExhaustedError("Too many calls wait; try again.");
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
