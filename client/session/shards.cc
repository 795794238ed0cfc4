#include "client/session/shards.h"

#include <cstring>

namespace vpod::session {
namespace {

bool LiesRowMajor(const program::HostTensor& variable) {
  return variable.whole_strides.empty() ||
         variable.whole_strides == program::RowMajorStrides(variable.whole.dims);
}

// Calls `visit(row-major, place)` for each element of the whole, in row-major order: its numbers
// there, and where it lies in the parts.
template <class Visit>
void ForElements(const program::HostTensor& variable, const Visit& visit) {
  const program::Dims& dims = variable.whole.dims;
  const program::Dims& strides = variable.whole_strides;
  program::Dims index(dims.size());
  int64_t place = 0;
  const auto elements = static_cast<size_t>(variable.whole.elements());
  for (size_t element = 0; element < elements; ++element) {
    visit(element, static_cast<size_t>(place));
    for (size_t axis = dims.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < dims[axis]) break;
      place -= dims[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

std::string JoinShards(const program::HostTensor& variable, std::string parts) {
  if (LiesRowMajor(variable)) return parts;
  const uint64_t size = program::SizeOf(variable.type.type);
  std::string whole(parts.size(), '\0');
  ForElements(variable, [&](size_t element, size_t place) {
    std::memcpy(whole.data() + element * size, parts.data() + place * size, size);
  });
  return whole;
}

std::string CutShards(const program::HostTensor& variable, std::string whole) {
  if (LiesRowMajor(variable)) return whole;
  const uint64_t size = program::SizeOf(variable.type.type);
  std::string parts(whole.size(), '\0');
  ForElements(variable, [&](size_t element, size_t place) {
    std::memcpy(parts.data() + place * size, whole.data() + element * size, size);
  });
  return parts;
}

}  // namespace vpod::session
