// --only-output-from-instance: one rank's part of what mpirun --tag-output prints.
#pragma once

#include <cstdint>
#include <string>

namespace vpod::launch {

// Lets through the output of one rank, and what mpirun itself says. Splits at every tag; keeps
// state between calls.
class OutputFilter {
 public:
  explicit OutputFilter(uint32_t rank) : rank_(rank) {}
  // Returns what to print of `data`; bytes that may be the beginning of a tag are held back.
  std::string Pass(const std::string& data);
  // Returns the bytes still held back when the stream ends.
  std::string Finish();

 private:
  const uint32_t rank_;
  std::string held_;
  bool at_line_start_ = true;
  bool showing_ = true;
};

}  // namespace vpod::launch
