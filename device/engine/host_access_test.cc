#include "device/engine/host_access.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace vpod::engine {
namespace {

constexpr size_t kElements = 2 * 3 * 2 * 2;

// Filters of [outputs, channels, rows, columns] that are stored with the outputs innermost.
program::HostTensor Filters() {
  return {.name = "w",
          .type = {program::v1::INT16, {2, 3, 2, 2}},
          .strides = program::OutputsLastStrides({2, 3, 2, 2})};
}

// The elements as stored, if element i of the host's form is i.
std::vector<int16_t> Stored() {
  std::vector<int16_t> stored;
  for (int pixel = 0; pixel < 4; ++pixel) {
    for (int channel = 0; channel < 3; ++channel) {
      for (int output = 0; output < 2; ++output)
        stored.push_back(static_cast<int16_t>((output * 3 + channel) * 4 + pixel));
    }
  }
  return stored;
}

std::string HostForm() {
  std::vector<int16_t> host(kElements);
  std::iota(host.begin(), host.end(), 0);
  return {reinterpret_cast<const char*>(host.data()), 2 * kElements};
}

TEST(HostAccess, ReadsAnyBytesInRowMajorOrder) {
  const std::vector<int16_t> stored = Stored();
  const auto* base = reinterpret_cast<const std::byte*>(stored.data());
  for (uint64_t begin = 0; begin <= 2 * kElements; ++begin) {
    for (uint64_t end = begin; end <= 2 * kElements; ++end) {
      ASSERT_EQ(ReadHostBytes(Filters(), base, begin, end - begin),
                HostForm().substr(begin, end - begin))
          << begin << " to " << end;
    }
  }
}

TEST(HostAccess, WritesAnyBytesAndNoOthers) {
  std::vector<int16_t> stored(kElements);
  auto* base = reinterpret_cast<std::byte*>(stored.data());
  for (uint64_t begin = 0; begin <= 2 * kElements; ++begin) {
    for (uint64_t end = begin; end <= 2 * kElements; ++end) {
      std::string expected(2 * kElements, '\x55');
      WriteHostBytes(Filters(), base, 0, expected);
      expected.replace(begin, end - begin, HostForm(), begin, end - begin);
      WriteHostBytes(Filters(), base, begin, HostForm().substr(begin, end - begin));
      ASSERT_EQ(ReadHostBytes(Filters(), base, 0, 2 * kElements), expected)
          << begin << " to " << end;
    }
  }
  WriteHostBytes(Filters(), base, 0, HostForm());
  EXPECT_EQ(stored, Stored());
}

}  // namespace
}  // namespace vpod::engine
