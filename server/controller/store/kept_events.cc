#include "server/controller/store/kept_events.h"

#include <tuple>

namespace vpod::controller {

bool KeptEvents::Rank::operator<(const Rank& other) const {
  return std::tie(other.events, oldest, user) < std::tie(events, other.oldest, other.user);
}

KeptEvents::Rank KeptEvents::RankOf(const Users::value_type& user) {
  return {user.second.size(), *user.second.begin(), user.first};
}

bool KeptEvents::Insert(uint64_t number, absl::string_view user) {
  auto it = users_.find(user);
  if (it == users_.end()) {
    it = users_.try_emplace(std::string(user)).first;
  } else {
    ranks_.erase(RankOf(*it));
  }
  const bool is_new = it->second.insert(number).second;
  ranks_.insert(RankOf(*it));
  if (is_new) ++size_;
  return is_new;
}

void KeptEvents::Erase(uint64_t number, absl::string_view user) {
  const auto it = users_.find(user);
  ranks_.erase(RankOf(*it));
  size_ -= it->second.erase(number);
  if (it->second.empty()) {
    users_.erase(it);
  } else {
    ranks_.insert(RankOf(*it));
  }
}

void KeptEvents::Add(uint64_t number, absl::string_view user) {
  if (Insert(number, user)) steps_.push_back({number, std::string(user), /*is_added=*/true});
}

std::optional<uint64_t> KeptEvents::TakeExcess() {
  if (size_ <= most_) return std::nullopt;
  const Rank next = *ranks_.begin();
  steps_.push_back({next.oldest, std::string(next.user), /*is_added=*/false});
  Erase(next.oldest, steps_.back().user);  // the name of the rank goes with the last event
  return next.oldest;
}

// A transaction of many events leaves no memory behind.
void KeptEvents::Committed() { steps_ = std::vector<Step>(); }

void KeptEvents::RolledBack() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->is_added) {
      Erase(step->number, step->user);
    } else {
      Insert(step->number, step->user);
    }
  }
  Committed();
}

}  // namespace vpod::controller
