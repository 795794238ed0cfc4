// Which events the log keeps: if it is full, the oldest event of the user who has the most of them
// goes first. So nobody, however busy, pushes out the events of a user who has fewer. Events that
// name no user count as those of one user.
//
// The numbers of all kept events are in memory by user, some 10 bytes for each event and at most
// 400 for each user, so that a commit needs neither an index nor a search of the table.
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

  // An event that was committed before.
  void Load(uint64_t number, absl::string_view user) { Insert(number, user); }
  // An event of this transaction.
  void Add(uint64_t number, absl::string_view user);
  // Takes out the event that goes next, and returns its number; nothing if there is room for all.
  std::optional<uint64_t> TakeExcess();
  // The ends of the transaction: what it added and took out stays so, or is as before.
  void Committed();
  void RolledBack();

 private:
  using Numbers = absl::btree_set<uint64_t>;
  using Users = std::map<std::string, Numbers, std::less<>>;
  // The place of a user in the order of who loses an event next.
  struct Rank {
    size_t events = 0;
    uint64_t oldest = 0;
    absl::string_view user;
    bool operator<(const Rank& other) const;
  };
  struct Step {
    uint64_t number = 0;
    std::string user;
    bool is_added = false;  // otherwise taken out
  };

  static Rank RankOf(const Users::value_type& user);
  // False if it was there.
  bool Insert(uint64_t number, absl::string_view user);
  void Erase(uint64_t number, absl::string_view user);

  const size_t most_;
  size_t size_ = 0;
  Users users_;              // who have events
  std::set<Rank> ranks_;     // of all users
  std::vector<Step> steps_;  // of this transaction
};

}  // namespace vpod::controller
