// Helpers of the tests of kernels: an IPU whose tensors are filled and read as doubles, and
// comparisons.
#pragma once

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/engine/kernels/kernel.h"

namespace vpod::engine {

using program::Dims;
using program::v1::BOOL;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT16;
using program::v1::INT32;
using program::v1::INT8;
using program::v1::UINT16;
using program::v1::UINT32;
using program::v1::UINT8;

using Values = std::vector<double>;

inline constexpr std::byte kGuard{0x7f};
struct alignas(64) GuardLine {
  GuardLine() { std::memset(bytes, static_cast<int>(kGuard), sizeof(bytes)); }
  std::byte bytes[64];
};

// Chunks run in reverse order, so that none may count on those before it; of several failures the
// first chunk's counts, as in the engine.
inline absl::Status RunPhases(const Kernel& kernel, std::byte* arena) {
  std::vector<GuardLine> shared(kernel.shared_bytes / sizeof(GuardLine) + 1, GuardLine()),
      packed(kernel.packed_bytes / sizeof(GuardLine) + 1, GuardLine()),
      scratch(kernel.scratch_bytes / sizeof(GuardLine) + 1, GuardLine());
  const Workspace at{arena, reinterpret_cast<std::byte*>(shared.data()),
                     reinterpret_cast<std::byte*>(packed.data()),
                     reinterpret_cast<std::byte*>(scratch.data())};
  for (const Phase& phase : kernel.phases) {
    for (size_t round = 0; round < phase.rounds; ++round) {
      absl::Status status;
      for (size_t chunk = (round + 1) * phase.chunks; chunk-- > round * phase.chunks;) {
        if (absl::Status each = phase.run(at, chunk); !each.ok()) status = std::move(each);
      }
      if (!status.ok()) return status;
    }
  }
  for (const auto& [memory, bytes] : {std::pair(&shared, kernel.shared_bytes),
                                      {&packed, kernel.packed_bytes},
                                      {&scratch, kernel.scratch_bytes}}) {
    const auto* end =
        reinterpret_cast<const std::byte*>(memory->data()) + memory->size() * sizeof(GuardLine);
    for (const auto* byte = end - sizeof(GuardLine) + bytes % sizeof(GuardLine); byte != end;
         ++byte) {
      if (*byte != kGuard) return absl::InternalError("the kernel wrote beyond its memory");
    }
  }
  return absl::OkStatus();
}

// An IPU and its arena. Tensors lie at multiples of 64 with a line of guard bytes between them;
// what nobody wrote reads as huge numbers or not-a-number, so that an element that a kernel forgets
// is noticed.
//
//   TestIpu ipu;
//   const uint32_t x = ipu.Add(FLOAT32, {2}, {1, 2}), y = ipu.Add(FLOAT32, {2});
//   ipu.Run(absl::StrCat("unary{operator:NEGATE} inputs:", x, " outputs:", y));
//   EXPECT_EQ(ipu.Read(y), (Values{-1, -2}));
class TestIpu {
 public:
  // Adds a tensor, with `values` rounded to its type or with garbage, and returns its index.
  uint32_t Add(program::v1::DataType type, const Dims& dims, const Values& values = {},
               bool wide = false, const Dims& strides = {}) {
    program::v1::Tensor* tensor = ipu_.add_tensors();
    tensor->set_type(type);
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    tensor->set_wide_accumulator(wide);
    tensor->mutable_strides()->Add(strides.begin(), strides.end());
    tensor->set_offset(lines_.size() * sizeof(GuardLine));
    const size_t lines = (program::ArenaBytes(*tensor) + sizeof(GuardLine) - 1) / sizeof(GuardLine);
    lines_.resize(lines_.size() + lines + 1, GuardLine());
    ipu_.set_arena_bytes(lines_.size() * sizeof(GuardLine));
    const auto index = static_cast<uint32_t>(ipu_.tensors_size() - 1);
    if (!values.empty()) Write(index, values);
    return index;
  }

  // As Add, for a tensor that is stored with the channels innermost. Values are in logical order.
  uint32_t AddImage(program::v1::DataType type, const Dims& dims, const Values& values = {}) {
    const Dims strides = program::ChannelsLastStrides(dims);
    const bool row_major =
        strides == program::RowMajorStrides(dims) || program::TensorType{type, dims}.empty();
    return Add(type, dims, values, false, row_major ? Dims() : strides);
  }

  void Write(uint32_t tensor, const Values& values) {
    ASSERT_EQ(values.size(), Elements(tensor));
    WithType(tensor, [&](auto* elements) {
      using T = std::remove_reference_t<decltype(*elements)>;
      for (size_t i = 0; i < values.size(); ++i)
        elements[PlaceOf(tensor, i)] = static_cast<T>(values[i]);
    });
  }

  Values Read(uint32_t tensor) {
    Values values(Elements(tensor));
    WithType(tensor, [&](auto* elements) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<double>(elements[PlaceOf(tensor, i)]);
    });
    return values;
  }

  // The bytes of all tensors, for comparisons to the bit.
  std::string Bytes() const {
    return {reinterpret_cast<const char*>(lines_.data()), lines_.size() * sizeof(GuardLine)};
  }

  // Validates, prepares and runs one instruction given as protobuf text; checks that it wrote no
  // guard bytes.
  absl::Status TryRun(const std::string& text) {
    program::v1::Instruction instruction;
    if (!google::protobuf::TextFormat::ParseFromString(text, &instruction)) {
      return absl::InternalError("the test's instruction does not parse: " + text);
    }
    const absl::Status valid = Validate(instruction);
    if (!valid.ok()) return valid;
    const absl::StatusOr<Kernel> kernel = PrepareKernel(ipu_, instruction);
    if (!kernel.ok()) return kernel.status();
    const absl::Status status = RunPhases(*kernel, Arena());
    for (const program::v1::Tensor& tensor : ipu_.tensors()) {
      const uint64_t end = tensor.offset() + program::ArenaBytes(tensor);
      const uint64_t next =
          (end + sizeof(GuardLine) - 1) / sizeof(GuardLine) * sizeof(GuardLine) + sizeof(GuardLine);
      for (uint64_t i = end; i < next; ++i) {
        if (Arena()[i] != kGuard)
          return absl::InternalError("the kernel wrote outside its tensors");
      }
    }
    return status;
  }
  void Run(const std::string& text) {
    const absl::Status status = TryRun(text);
    ASSERT_TRUE(status.ok()) << text << ": " << status;
  }

  const program::v1::Ipu& proto() const { return ipu_; }
  std::byte* Arena() { return reinterpret_cast<std::byte*>(lines_.data()); }

 private:
  // Where element `i` in logical order lies.
  size_t PlaceOf(uint32_t index, size_t i) const {
    const program::v1::Tensor& tensor = ipu_.tensors(static_cast<int>(index));
    if (tensor.strides().empty()) return i;
    size_t place = 0;
    for (int axis = tensor.dims_size(); axis-- > 0;) {
      const auto dim = static_cast<size_t>(tensor.dims(axis));
      place += i % dim * static_cast<size_t>(tensor.strides(axis));
      i /= dim;
    }
    return place;
  }

  size_t Elements(uint32_t tensor) const {
    return static_cast<size_t>(program::TypeOf(ipu_.tensors(static_cast<int>(tensor))).elements());
  }

  // A kernel may rely on validation; a test must not ask it for what validation refuses.
  absl::Status Validate(const program::v1::Instruction& instruction) const {
    program::v1::Executable executable;
    executable.set_ipus_per_replica(1);
    *executable.add_ipus() = ipu_;
    *executable.mutable_ipus(0)->add_functions()->add_instructions() = instruction;
    program::v1::Program* program = executable.add_programs();
    program->set_name("test");
    program->add_functions(0);
    return program::Validate(executable, {});
  }

  template <class F>
  void WithType(uint32_t index, const F& f) {
    const program::v1::Tensor& tensor = ipu_.tensors(static_cast<int>(index));
    std::byte* data = Arena() + tensor.offset();
    if (tensor.wide_accumulator()) return f(reinterpret_cast<double*>(data));
    switch (tensor.type()) {
      case FLOAT32:
        return f(reinterpret_cast<float*>(data));
      case FLOAT16:
        return f(reinterpret_cast<_Float16*>(data));
      case INT8:
        return f(reinterpret_cast<int8_t*>(data));
      case INT16:
        return f(reinterpret_cast<int16_t*>(data));
      case INT32:
        return f(reinterpret_cast<int32_t*>(data));
      case UINT16:
        return f(reinterpret_cast<uint16_t*>(data));
      case UINT32:
        return f(reinterpret_cast<uint32_t*>(data));
      default:
        return f(reinterpret_cast<uint8_t*>(data));
    }
  }

  program::v1::Ipu ipu_;
  std::vector<GuardLine> lines_;
};

inline size_t NumElements(const Dims& dims) {
  size_t n = 1;
  for (int64_t dim : dims) n *= static_cast<size_t>(dim);
  return n;
}

// "float32[2,3]"
inline std::string Describe(program::v1::DataType type, const Dims& dims) {
  return program::TensorType{type, dims}.ToString();
}

inline Values Random(const Dims& dims, uint32_t seed, double low = -2, double high = 2) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Values values(NumElements(dims));
  for (double& value : values) value = uniform(generator);
  return values;
}

// Whole numbers: sums of their products are exact in float32 in whatever order they are taken.
inline Values RandomIntegers(const Dims& dims, uint32_t seed, int low = -3, int high = 3) {
  std::mt19937 generator(seed);
  Values values(NumElements(dims));
  for (double& value : values) value = low + static_cast<int>(generator() % (high - low + 1));
  return values;
}

inline double Round(double value, program::v1::DataType type) {
  return type == FLOAT16 ? static_cast<double>(static_cast<_Float16>(value))
                         : static_cast<double>(static_cast<float>(value));
}

// `actual` is `expected` correctly rounded.
inline void ExpectRounded(const Values& actual, const Values& expected,
                          program::v1::DataType type) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double rounded = Round(expected[i], type);
    if (std::isnan(rounded)) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
    } else {
      EXPECT_EQ(actual[i], rounded) << "element " << i;
    }
  }
}

// `actual` is within `relative` of `expected` and of rounding once to the type; `absolute` is for
// sums that cancel.
inline void ExpectClose(const Values& actual, const Values& expected, program::v1::DataType type,
                        double relative = 1e-6, double absolute = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  const double rounding = type == FLOAT16 ? 1.0 / 2048 : 1.0 / (1 << 24);
  // Half of the distance of the smallest float16 numbers.
  const double smallest = type == FLOAT16 ? std::ldexp(1.0, -25) : 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double bound = (relative + rounding) * std::fabs(expected[i]) + absolute + smallest;
    EXPECT_NEAR(actual[i], expected[i], bound) << "element " << i;
  }
}

// Names "Float32" and "Float16" for suites that run with both types.
inline std::string FloatTypeName(const testing::TestParamInfo<program::v1::DataType>& info) {
  return info.param == FLOAT16 ? "Float16" : "Float32";
}

}  // namespace vpod::engine
