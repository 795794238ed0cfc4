#include "server/controller/fair_queue.h"

#include <algorithm>
#include <utility>

namespace vpod::controller {
namespace {

absl::Status Ends() { return absl::UnavailableError("The server ends."); }

}  // namespace

FairQueue::FairQueue(size_t threads, size_t most_waiting, size_t most_together)
    : most_waiting_(most_waiting), most_together_(most_together) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Serve(); });
}

void FairQueue::Close() {
  std::map<std::string, Party> parties;
  {
    base::MutexLock lock(mutex_);
    ends_ = true;
    waiting_ = 0;
    parties.swap(parties_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (auto& [name, party] : parties) {
    for (Work& work : party.waiting) work(Ends());
  }
}

absl::Status FairQueue::Add(const std::string& party, Work work) {
  {
    base::MutexLock lock(mutex_);
    if (ends_) return Ends();
    const auto it = parties_.find(party);
    const size_t of_party = it == parties_.end() ? 0 : it->second.waiting.size();
    if (of_party >= most_waiting_ || (of_party > 0 && waiting_ >= most_together_)) return TooMany();
    Party& asking = parties_[party];
    // A party has no claim to turns that others took while it did not ask: somebody could ask for
    // much in the name of another, and then come by a new name, for which that one would wait.
    if (asking.waiting.empty()) asking.turns = std::max(asking.turns, latest_);
    asking.waiting.push_back(std::move(work));
    ++waiting_;
  }
  changed_.notify_one();
  return absl::OkStatus();
}

absl::Status FairQueue::TooMany() {
  return absl::ResourceExhaustedError("Too many calls wait; try again.");
}

size_t FairQueue::waiting() {
  base::MutexLock lock(mutex_);
  return waiting_;
}

FairQueue::Work FairQueue::Next() {
  Party* next = nullptr;
  for (auto& [name, party] : parties_) {
    if (!party.waiting.empty() && (next == nullptr || party.turns < next->turns)) next = &party;
  }
  Work work = std::move(next->waiting.front());
  next->waiting.pop_front();
  latest_ = next->turns++;
  // Once nothing waits, it does not matter how much each party has had.
  if (--waiting_ == 0) {
    parties_.clear();
    latest_ = 0;
  }
  return work;
}

void FairQueue::Serve() {
  while (true) {
    Work work;
    {
      base::MutexLock lock(mutex_);
      lock.Wait(changed_, [this] { return ends_ || waiting_ > 0; });
      if (ends_) return;
      work = Next();
    }
    work(absl::OkStatus());
  }
}

}  // namespace vpod::controller
