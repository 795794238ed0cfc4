// Indices that another process rewrites while a kernel runs, as one that has mapped the arena may:
// the index that was checked is the one that is used.
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <thread>

#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

std::string List(std::initializer_list<uint32_t> tensors) {
  return absl::StrCat("[", absl::StrJoin(tensors, ","), "]");
}

// Stores numbers into a tensor, some of them far outside of any other, until it goes.
class Rewriter {
 public:
  Rewriter(TestIpu& ipu, uint32_t tensor)
      : thread_([this, indices = Indices(ipu, tensor), n = Elements(ipu, tensor)] {
          constexpr std::array<int32_t, 6> kNumbers = {0, std::numeric_limits<int32_t>::min(),
                                                       1, std::numeric_limits<int32_t>::max(),
                                                       0, -1};
          for (size_t i = 0; !stop_; ++i) {
            for (size_t place = 0; place < n; ++place)
              std::atomic_ref(indices[place]).store(kNumbers[i % kNumbers.size()]);
          }
        }) {}
  ~Rewriter() {
    stop_ = true;
    thread_.join();
  }

 private:
  static int32_t* Indices(TestIpu& ipu, uint32_t tensor) {
    return reinterpret_cast<int32_t*>(ipu.Arena() +
                                      ipu.proto().tensors(static_cast<int>(tensor)).offset());
  }
  static size_t Elements(const TestIpu& ipu, uint32_t tensor) {
    return static_cast<size_t>(
        program::TypeOf(ipu.proto().tensors(static_cast<int>(tensor))).elements());
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Runs an instruction again and again while its indices change.
void ExpectHarmless(TestIpu& ipu, uint32_t indices, const std::string& text, int runs = 5000) {
  SCOPED_TRACE(text);
  const Rewriter rewriter(ipu, indices);
  for (int run = 0; run < runs; ++run) {
    const absl::Status status = ipu.TryRun(text);
    ASSERT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST(RewrittenTest, IndicesOfGatherAndScatter) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {4, 8}, Random({4, 8}, 1)),
                 indices = ipu.Add(INT32, {3}, {0, 1, 2}),
                 along = ipu.Add(INT32, {4, 3}, Values(12, 0)),
                 y = ipu.Add(FLOAT32, {4, 3}, Values(12, 0));
  ExpectHarmless(ipu, indices,
                 absl::StrCat("gather{axis:1} inputs:", List({x, indices}), " outputs:", y));
  ExpectHarmless(
      ipu, along,
      absl::StrCat("gather{axis:1 along:true} inputs:", List({x, along}), " outputs:", y));
  ExpectHarmless(
      ipu, indices,
      absl::StrCat("scatter{combine:ADD axis:1} inputs:", List({x, indices, y}), " outputs:", x));
}

TEST(RewrittenTest, Labels) {
  TestIpu ipu;
  const uint32_t logits = ipu.Add(FLOAT32, {4, 8}, Random({4, 8}, 1)),
                 labels = ipu.Add(INT32, {4}, {0, 1, 2, 3}),
                 loss = ipu.Add(FLOAT32, {4}, Values(4, 0)),
                 probabilities = ipu.Add(FLOAT32, {4, 8}), gradient = ipu.Add(FLOAT32, {4, 8});
  ExpectHarmless(ipu, labels,
                 absl::StrCat("softmax_cross_entropy{} inputs:", List({logits, labels}),
                              " outputs:", List({loss, probabilities})));
  ExpectHarmless(ipu, labels,
                 absl::StrCat("softmax_cross_entropy_gradient{} inputs:",
                              List({probabilities, labels, loss}), " outputs:", gradient));
}

TEST(RewrittenTest, LabelsOfRowsThatAreCut) {
  constexpr int64_t kClasses = (1 << 20) + 1;
  TestIpu ipu;
  const uint32_t logits = ipu.Add(FLOAT32, {1, kClasses}, Values(kClasses, 0)),
                 labels = ipu.Add(INT32, {1}, {0}), loss = ipu.Add(FLOAT32, {1}),
                 probabilities = ipu.Add(FLOAT32, {1, kClasses});
  ExpectHarmless(ipu, labels,
                 absl::StrCat("softmax_cross_entropy{} inputs:", List({logits, labels}),
                              " outputs:", List({loss, probabilities})),
                 /*runs=*/50);
}

TEST(RewrittenTest, PlacesOfSlices) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {4, 8}, Random({4, 8}, 1)), start = ipu.Add(INT32, {1}, {0}),
                 slice = ipu.Add(FLOAT32, {4, 3}, Values(12, 0));
  ExpectHarmless(
      ipu, start,
      absl::StrCat("dynamic_slice{axes:1 size:3} inputs:", List({x, start}), " outputs:", slice));
  ExpectHarmless(
      ipu, start,
      absl::StrCat("dynamic_update{axes:1} inputs:", List({x, slice, start}), " outputs:", x));
}

TEST(RewrittenTest, PlacesOfTheLargestElements) {
  TestIpu ipu;
  const uint32_t gradient = ipu.AddImage(FLOAT32, {2, 8, 2, 2}, Values(64, 1)),
                 places = ipu.AddImage(INT32, {2, 8, 2, 2}, Values(64, 0)),
                 image = ipu.AddImage(FLOAT32, {2, 8, 4, 4});
  ExpectHarmless(ipu, places,
                 absl::StrCat("max_pool_gradient{image_size:[4,4] window{kernel:[2,2] stride:[2,2] "
                              "dilation:[1,1] pad_before:[0,0] pad_after:[0,0]}} inputs:",
                              List({gradient, places}), " outputs:", image));
}

}  // namespace
}  // namespace vpod::engine
