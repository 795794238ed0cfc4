#include "client/popdist/collectives.hpp"

#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/popdist/communicator.h"
#include "client/popdist/context.hpp"

namespace popdist {
namespace {

size_t SizeOf(Type type) {
  switch (type) {
    case Type::BOOL:
    case Type::UNSIGNED_CHAR:
      return 1;
    case Type::HALF:
      return 2;
    case Type::INT:
    case Type::UNSIGNED_INT:
    case Type::FLOAT:
      return 4;
    default:
      return 8;
  }
}

// One collective on the members of its communicator: everything goes to the root and comes back.
class Exchange {
 public:
  // Throws on all members when they differ.
  Exchange(Operation operation, size_t count, Type type, uint32_t root, const std::string& id)
      : communicator_(FindCommunicator(id)) {
    if (count > static_cast<size_t>(std::numeric_limits<int>::max()) / SizeOf(type))
      throw popdist_error(absl::StrCat("collective '", id, "' is larger than 2 GiB"));
    const Call call{operation, static_cast<uint32_t>(type), count, root, id};
    tag_ = TagOf(call);
    if (!Agree(communicator_, call)) {
      throw popdist_error(absl::StrCat("Tensor layouts did not match on all instances (", id, ")"));
    }
  }

  const Communicator& communicator() const { return communicator_; }

  // The `bytes` of every member by rank, on the root; nothing on the others.
  std::vector<std::vector<char>> GatherAtRoot(const void* data, size_t bytes) {
    if (!communicator_.IsRoot()) {
      communicator_.backend.send(data, bytes, communicator_.members[0], tag_);
      return {};
    }
    std::vector<std::vector<char>> all(communicator_.size(), std::vector<char>(bytes));
    if (bytes > 0) std::memcpy(all[0].data(), data, bytes);
    for (uint32_t rank = 1; rank < communicator_.size(); ++rank)
      communicator_.backend.receive(all[rank].data(), bytes, communicator_.members[rank], tag_);
    return all;
  }

  // The root's `bytes` go to all.
  void Spread(void* data, size_t bytes) {
    if (!communicator_.IsRoot()) {
      communicator_.backend.receive(data, bytes, communicator_.members[0], tag_);
      return;
    }
    for (uint32_t rank = 1; rank < communicator_.size(); ++rank)
      communicator_.backend.send(data, bytes, communicator_.members[rank], tag_);
  }

 private:
  const Communicator communicator_;
  uint32_t tag_ = 0;
};

template <class T, class Sum>
void AddUp(const std::vector<std::vector<char>>& all, size_t count, void* result) {
  for (size_t i = 0; i < count; ++i) {
    Sum sum{};
    for (const auto& bytes : all) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      sum += static_cast<Sum>(value);
    }
    const T rounded = static_cast<T>(sum);
    std::memcpy(static_cast<char*>(result) + i * sizeof(T), &rounded, sizeof(T));
  }
}

void AddUp(const std::vector<std::vector<char>>& all, size_t count, Type type, void* result) {
  switch (type) {
    case Type::BOOL:
    case Type::UNSIGNED_CHAR:
      return AddUp<unsigned char, uint32_t>(all, count, result);
    case Type::INT:
    case Type::UNSIGNED_INT:
      return AddUp<uint32_t, uint32_t>(all, count, result);
    case Type::LONGLONG:
      return AddUp<uint64_t, uint64_t>(all, count, result);
    case Type::HALF:
      return AddUp<_Float16, float>(all, count, result);
    case Type::FLOAT:
      return AddUp<float, float>(all, count, result);
    case Type::DOUBLE:
      return AddUp<double, double>(all, count, result);
  }
}

}  // namespace

namespace collectives {

void broadcast(void* data, size_t count, Type type, unsigned root, const std::string& id) {
  Exchange exchange(Operation::kBroadcast, count, type, root, id);
  const uint32_t size = exchange.communicator().size();
  if (root >= size)
    throw popdist_error(absl::StrCat("broadcast '", id, "' from rank ", root, " of ", size));
  const size_t bytes = count * SizeOf(type);
  const auto all = exchange.GatherAtRoot(data, bytes);
  if (exchange.communicator().IsRoot() && bytes > 0) std::memcpy(data, all[root].data(), bytes);
  exchange.Spread(data, bytes);
}

void allReduceSum(void* inout, size_t count, Type type, const std::string& id) {
  Exchange exchange(Operation::kAllReduceSum, count, type, 0, id);
  const size_t bytes = count * SizeOf(type);
  const auto all = exchange.GatherAtRoot(inout, bytes);
  if (exchange.communicator().IsRoot()) AddUp(all, count, type, inout);
  exchange.Spread(inout, bytes);
}

void allGather(const void* in, void* out, size_t count_per_instance, Type type,
               const std::string& id, bool inplace) {
  Exchange exchange(Operation::kAllGather, count_per_instance, type, 0, id);
  const size_t bytes = count_per_instance * SizeOf(type);
  auto* target = static_cast<char*>(out);
  const void* ours = inplace ? target + exchange.communicator().rank * bytes : in;
  const auto all = exchange.GatherAtRoot(ours, bytes);
  for (size_t rank = 0; rank < all.size() && bytes > 0; ++rank)
    std::memcpy(target + rank * bytes, all[rank].data(), bytes);
  // One after the other: all together may be more than a message can be.
  for (uint32_t rank = 0; rank < exchange.communicator().size(); ++rank)
    exchange.Spread(target + rank * bytes, bytes);
}

}  // namespace collectives
}  // namespace popdist
