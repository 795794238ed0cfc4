// Small files as a whole.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace vpod::base {

// The bytes of a file; none when it cannot be read.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace vpod::base
