// Which events the log keeps: if it is full, the oldest event of the user who has the most of them
// goes first. So nobody, however busy, pushes out the events of a user who has fewer. Events that
// name no user count by the kind of their object, all of agents as those of one user: a busy user's
// partitions change their states all the time, and push out no failure of an agent.
//
// The numbers of all kept events are in memory by owner, some 10 bytes for each event and at most
// 400 for each owner, so that a commit needs neither an index nor a search of the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/string_view.h"

namespace vpod::controller {

// Follows the transactions of the store. Not thread-safe: guarded by the store's lock. A number is
// used once.
class KeptEvents {
 public:
  explicit KeptEvents(size_t most) : most_(most) {}
  KeptEvents(const KeptEvents&) = delete;
  KeptEvents& operator=(const KeptEvents&) = delete;

  // The owner of an event for the functions below: its user, or the kind of its object. No user is
  // taken for a kind.
  static std::string OwnerOf(absl::string_view user, absl::string_view object);
  // An event that was committed before.
  void Load(uint64_t number, absl::string_view owner) { Insert(number, owner); }
  // An event of this transaction.
  void Add(uint64_t number, absl::string_view owner);
  // Takes out the event that goes next, and returns its number; nothing if there is room for all.
  std::optional<uint64_t> TakeExcess();
  // The ends of the transaction: what it added and took out stays so, or is as before.
  void Committed();
  void RolledBack();

 private:
  using Numbers = absl::btree_set<uint64_t>;
  using Owners = std::map<std::string, Numbers, std::less<>>;
  // The place of an owner in the order of who loses an event next.
  struct Rank {
    size_t events = 0;
    uint64_t oldest = 0;
    absl::string_view owner;
    bool operator<(const Rank& other) const;
  };
  struct Step {
    uint64_t number = 0;
    std::string owner;
    bool is_added = false;  // otherwise taken out
  };

  static Rank RankOf(const Owners::value_type& owner);
  // False if it was there.
  bool Insert(uint64_t number, absl::string_view owner);
  void Erase(uint64_t number, absl::string_view owner);

  const size_t most_;
  size_t size_ = 0;
  Owners owners_;            // with events
  std::set<Rank> ranks_;     // of all owners
  std::vector<Step> steps_;  // of this transaction
};

}  // namespace vpod::controller
