// A table with a row for each op. Every room that knows the op set has one, made of its families'
// rows; a row has a member `kind`.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "device/program/tensor_type.h"

namespace vpod::program {

template <class Row>
class OpRows {
 public:
  using Family = std::vector<Row> (*)();

  OpRows(std::initializer_list<Family> families) {
    for (const Family family : families) {
      for (Row& row : family()) {
        const auto kind = static_cast<size_t>(row.kind);
        if (kind >= rows_.size()) rows_.resize(kind + 1);
        rows_[kind] = std::move(row);
      }
    }
  }
  // Null for a kind without a row.
  const Row* Find(OpKind kind) const {
    const auto index = static_cast<size_t>(kind);
    return index < rows_.size() && rows_[index].has_value() ? &*rows_[index] : nullptr;
  }

 private:
  std::vector<std::optional<Row>> rows_;  // by kind
};

}  // namespace vpod::program
