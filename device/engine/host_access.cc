#include "device/engine/host_access.h"

#include <cstring>

#include "device/engine/kernels/loop.h"

namespace vpod::engine {
namespace {

// Elements [begin, end), in row-major order, which cover a range of bytes.
struct Elements {
  uint64_t size;  // of one
  size_t begin, end;

  Elements(const program::HostTensor& tensor, uint64_t offset, uint64_t bytes)
      : size(program::SizeOf(tensor.type.type)),
        begin(offset / size),
        end((offset + bytes + size - 1) / size) {}
  uint64_t bytes() const { return (end - begin) * size; }
};

// Calls `move(host, element)` with the places of each of these elements, in elements: among them,
// and in the tensor.
template <class Move>
void ForElements(const program::HostTensor& tensor, const Elements& elements, const Move& move) {
  const program::Dims& dims = tensor.type.dims;
  const Loop loop = PlanLoop(dims, {program::RowMajorStrides(dims), tensor.strides});
  loop.ForBlocks(elements.begin, elements.end, [&](const auto& at, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const auto step = static_cast<int64_t>(i);
      move(static_cast<size_t>(at[0] + step * loop.steps[0]) - elements.begin,
           static_cast<size_t>(at[1] + step * loop.steps[1]));
    }
  });
}

std::string Gather(const program::HostTensor& tensor, const std::byte* base,
                   const Elements& elements) {
  std::string host(elements.bytes(), '\0');
  WithElement(tensor.type.type, [&](auto element) {
    using T = decltype(element);
    const auto* from = reinterpret_cast<const T*>(base);
    auto* to = reinterpret_cast<T*>(host.data());
    ForElements(tensor, elements, [&](size_t i, size_t place) { to[i] = from[place]; });
  });
  return host;
}

}  // namespace

std::string ReadHostBytes(const program::HostTensor& tensor, const std::byte* base, uint64_t offset,
                          uint64_t bytes) {
  if (tensor.strides.empty())
    return std::string(reinterpret_cast<const char*>(base) + offset, bytes);
  const Elements elements(tensor, offset, bytes);
  return Gather(tensor, base, elements).substr(offset - elements.begin * elements.size, bytes);
}

void WriteHostBytes(const program::HostTensor& tensor, std::byte* base, uint64_t offset,
                    absl::string_view data) {
  if (tensor.strides.empty()) {
    std::memcpy(base + offset, data.data(), data.size());
    return;
  }
  const Elements elements(tensor, offset, data.size());
  // The first and the last element may be written in part.
  std::string host(data);
  if (host.size() != elements.bytes()) {
    host = Gather(tensor, base, elements);
    std::memcpy(host.data() + (offset - elements.begin * elements.size), data.data(), data.size());
  }
  WithElement(tensor.type.type, [&](auto element) {
    using T = decltype(element);
    const auto* from = reinterpret_cast<const T*>(host.data());
    auto* to = reinterpret_cast<T*>(base);
    ForElements(tensor, elements, [&](size_t i, size_t place) { to[place] = from[i]; });
  });
}

}  // namespace vpod::engine
