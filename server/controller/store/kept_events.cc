#include "server/controller/store/kept_events.h"

#include <tuple>

#include "absl/strings/str_cat.h"

namespace vpod::controller {

bool KeptEvents::Rank::operator<(const Rank& other) const {
  return std::tie(other.events, oldest, owner) < std::tie(events, other.oldest, other.owner);
}

KeptEvents::Rank KeptEvents::RankOf(const Owners::value_type& owner) {
  return {owner.second.size(), *owner.second.begin(), owner.first};
}

std::string KeptEvents::OwnerOf(absl::string_view user, absl::string_view object) {
  return user.empty() ? absl::StrCat("kind ", object.substr(0, object.find(' ')))
                      : absl::StrCat("user ", user);
}

bool KeptEvents::Insert(uint64_t number, absl::string_view owner) {
  auto it = owners_.find(owner);
  if (it == owners_.end()) {
    it = owners_.try_emplace(std::string(owner)).first;
  } else {
    ranks_.erase(RankOf(*it));
  }
  const bool is_new = it->second.insert(number).second;
  ranks_.insert(RankOf(*it));
  if (is_new) ++size_;
  return is_new;
}

void KeptEvents::Erase(uint64_t number, absl::string_view owner) {
  const auto it = owners_.find(owner);
  ranks_.erase(RankOf(*it));
  size_ -= it->second.erase(number);
  if (it->second.empty()) {
    owners_.erase(it);
  } else {
    ranks_.insert(RankOf(*it));
  }
}

void KeptEvents::Add(uint64_t number, absl::string_view owner) {
  if (Insert(number, owner)) steps_.push_back({number, std::string(owner), /*is_added=*/true});
}

std::optional<uint64_t> KeptEvents::TakeExcess() {
  if (size_ <= most_) return std::nullopt;
  const Rank next = *ranks_.begin();
  steps_.push_back({next.oldest, std::string(next.owner), /*is_added=*/false});
  Erase(next.oldest, steps_.back().owner);  // the name of the rank goes with the last event
  return next.oldest;
}

// A transaction of many events leaves no memory behind.
void KeptEvents::Committed() { steps_ = std::vector<Step>(); }

void KeptEvents::RolledBack() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->is_added) {
      Erase(step->number, step->owner);
    } else {
      Insert(step->number, step->owner);
    }
  }
  Committed();
}

}  // namespace vpod::controller
