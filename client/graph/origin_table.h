// The origins of a graph's operations and of the instructions made of them: each once, known by a
// number.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "device/program/origins.h"

namespace vpod::graph {

class OriginTable {
 public:
  // The number of an origin, from 1. Texts are kept as one line of a message can show them.
  uint32_t Add(const program::v1::Origin& origin);
  uint32_t Add(std::string scope, std::string op);
  // `number` is one that Add has returned.
  const program::v1::Origin& at(uint32_t number) const { return origins_[number - 1]; }
  // In the order of their numbers.
  const std::vector<program::v1::Origin>& all() const { return origins_; }

 private:
  std::vector<program::v1::Origin> origins_;
  std::map<std::tuple<std::string, std::string, int, uint32_t>, uint32_t> numbers_;
};

}  // namespace vpod::graph
