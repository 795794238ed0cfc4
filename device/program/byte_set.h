// A set of bytes of an arena, as disjoint ranges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace vpod::program {

class ByteSet {
 public:
  void Add(uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    auto it = FirstThatTouches(begin);
    while (it != ranges_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges_.erase(it);
    }
    ranges_[begin] = end;
  }
  void Remove(uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    auto it = FirstThatTouches(begin);
    while (it != ranges_.end() && it->first < end) {
      const auto [first, last] = *it;
      it = ranges_.erase(it);
      if (first < begin) ranges_[first] = std::min(begin, last);
      if (last > end) ranges_[std::max(end, first)] = last;
    }
  }
  // Whether all bytes of a range, which may be empty, are in the set.
  bool Contains(uint64_t begin, uint64_t end) const {
    if (begin >= end) return true;
    const auto it = ranges_.upper_bound(begin);
    return it != ranges_.begin() && std::prev(it)->second >= end;
  }
  // Whether any byte of a range is in the set.
  bool Touches(uint64_t begin, uint64_t end) const {
    if (begin >= end) return false;
    const auto it = ranges_.lower_bound(end);
    return it != ranges_.begin() && std::prev(it)->second > begin;
  }
  // The bytes that are not in `other`.
  ByteSet Without(const ByteSet& other) const {
    ByteSet rest = *this;
    for (const auto& [begin, end] : other.ranges_) rest.Remove(begin, end);
    return rest;
  }
  void UniteWith(const ByteSet& other) {
    for (const auto& [begin, end] : other.ranges_) Add(begin, end);
  }
  void IntersectWith(const ByteSet& other) {
    std::map<uint64_t, uint64_t> both;
    auto a = ranges_.begin();
    auto b = other.ranges_.begin();
    while (a != ranges_.end() && b != other.ranges_.end()) {
      const uint64_t begin = std::max(a->first, b->first), end = std::min(a->second, b->second);
      if (begin < end) both[begin] = end;
      if (a->second < b->second) {
        ++a;
      } else {
        ++b;
      }
    }
    ranges_ = std::move(both);
  }

  uint64_t size() const {
    uint64_t bytes = 0;
    for (const auto& [begin, end] : ranges_) bytes += end - begin;
    return bytes;
  }
  // The first byte behind each range, by the range's first byte; ranges do not touch.
  const std::map<uint64_t, uint64_t>& ranges() const { return ranges_; }
  friend bool operator==(const ByteSet&, const ByteSet&) = default;

 private:
  // The first range that ends at `at` or behind it.
  std::map<uint64_t, uint64_t>::iterator FirstThatTouches(uint64_t at) {
    auto it = ranges_.upper_bound(at);
    if (it != ranges_.begin() && std::prev(it)->second >= at) --it;
    return it;
  }

  std::map<uint64_t, uint64_t> ranges_;
};

}  // namespace vpod::program
