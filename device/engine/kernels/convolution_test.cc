#include "device/engine/kernels/convolution.h"

#include "device/engine/kernels/kernel_test_util.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::engine {
namespace {

// A convolution in terms of its forward pass.
struct Case {
  const char* name;
  int64_t images, channels, outputs, groups;
  Dims image, kernel, stride, dilation, before, after;

  Dims ResultSize() const {
    Dims size;
    for (size_t i = 0; i < image.size(); ++i) {
      size.push_back(
          (image[i] + before[i] + after[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1);
    }
    return size;
  }
  static Dims Joined(Dims head, const Dims& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }
  Dims ImageDims() const { return Joined({images, channels}, image); }
  Dims WeightDims() const { return Joined({outputs, channels / groups}, kernel); }
  Dims ResultDims() const { return Joined({images, outputs}, ResultSize()); }
  std::string Attributes(const char* pass) const {
    std::string text = absl::StrCat("convolution{pass:", pass, " groups:", groups, " window{");
    const auto add = [&](const char* field, const Dims& values) {
      for (int64_t value : values) absl::StrAppend(&text, field, ":", value, " ");
    };
    add("kernel", kernel);
    add("stride", stride);
    add("dilation", dilation);
    add("pad_before", before);
    add("pad_after", after);
    text += "} ";
    if (std::string(pass) == "INPUT_GRADIENT") {
      for (int64_t size : image) absl::StrAppend(&text, "image_size:", size, " ");
    }
    return text + "}";
  }
};

// Index of a point in row-major order; -1 outside.
int64_t IndexOf(const Dims& dims, const Dims& point) {
  int64_t index = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (point[i] < 0 || point[i] >= dims[i]) return -1;
    index = index * dims[i] + point[i];
  }
  return index;
}

Dims PointOf(const Dims& dims, int64_t index) {
  Dims point(dims.size());
  for (size_t i = dims.size(); i-- > 0; index /= dims[i]) point[i] = index % dims[i];
  return point;
}

// Calls `visit(image element, weight, result element)` for each multiply-add.
template <class Visit>
void ForProducts(const Case& c, const Visit& visit) {
  const Dims result = c.ResultDims(), weights = c.WeightDims(), image = c.ImageDims();
  const auto per_group = static_cast<size_t>(c.channels / c.groups);
  for (size_t r = 0; r < NumElements(result); ++r) {
    const Dims at = PointOf(result, static_cast<int64_t>(r));
    const int64_t group = at[1] / (c.outputs / c.groups);
    const size_t filter = NumElements(weights) / static_cast<size_t>(c.outputs);
    for (size_t w = 0; w < filter; ++w) {
      const Dims k = PointOf(Case::Joined({static_cast<int64_t>(per_group)}, c.kernel),
                             static_cast<int64_t>(w));
      Dims x = {at[0], group * static_cast<int64_t>(per_group) + k[0]};
      for (size_t i = 0; i < c.kernel.size(); ++i)
        x.push_back(at[i + 2] * c.stride[i] - c.before[i] + k[i + 1] * c.dilation[i]);
      const int64_t from = IndexOf(image, x);
      if (from >= 0) visit(static_cast<size_t>(from), static_cast<size_t>(at[1]) * filter + w, r);
    }
  }
}

class ConvolutionTest : public testing::TestWithParam<std::tuple<Case, program::v1::DataType>> {
 protected:
  const Case& shape() const { return std::get<0>(GetParam()); }
  program::v1::DataType type() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvolutionTest,
    testing::Combine(
        testing::Values(
            Case{"Simple", 2, 3, 5, 1, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
            Case{"Strided", 3, 4, 6, 1, {11, 9}, {3, 2}, {2, 3}, {1, 1}, {1, 0}, {0, 1}},
            Case{"OneByOneStrided", 2, 20, 33, 1, {8, 7}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
            Case{"Dilated", 2, 3, 4, 1, {12, 13}, {3, 3}, {1, 2}, {2, 3}, {2, 3}, {4, 0}},
            Case{"Grouped", 2, 8, 12, 4, {9, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
            Case{"Depthwise", 2, 24, 24, 24, {6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
            Case{"DepthwiseWide", 2, 20, 20, 20, {7, 6}, {5, 5}, {1, 2}, {1, 1}, {2, 2}, {2, 1}},
            Case{"DepthwiseDilated",
                 2,
                 48,
                 48,
                 48,
                 {20, 5},
                 {9, 4},
                 {2, 1},
                 {2, 3},
                 {3, 5},
                 {16, 4}},
            Case{"Line", 4, 5, 7, 1, {50}, {5}, {2}, {1}, {2}, {2}},
            Case{"Volume",
                 2,
                 3,
                 4,
                 1,
                 {5, 6, 4},
                 {3, 2, 3},
                 {1, 2, 1},
                 {1, 1, 1},
                 {1, 0, 1},
                 {1, 1, 0}},
            Case{"ManyOutputs", 2, 40, 130, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
            Case{"WideWindow", 5, 32, 16, 1, {2, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
            Case{"WideWindowStrided", 3, 16, 16, 1, {2, 2}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 1}},
            Case{"FullVectors", 2, 32, 48, 1, {5, 4}, {2, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 1}},
            Case{"StrideBeyondTheKernel",
                 1,
                 3,
                 2,
                 1,
                 {17, 16},
                 {2, 2},
                 {5, 4},
                 {1, 1},
                 {1, 0},
                 {0, 0}},
            Case{"CutByRows", 1, 2, 3, 1, {1501, 1500}, {3, 3}, {8, 8}, {1, 1}, {1, 1}, {1, 1}},
            Case{"WideImages", 2, 2, 3, 1, {4, 5000}, {3, 4}, {1, 3}, {1, 1}, {1, 2}, {1, 0}},
            Case{"LongLine", 1, 2, 2, 1, {2200000}, {7}, {30}, {2}, {5}, {6}}),
        testing::Values(FLOAT32, FLOAT16)),
    [](const auto& info) {
      return absl::StrCat(std::get<0>(info.param).name,
                          std::get<1>(info.param) == FLOAT16 ? "Half" : "Float");
    });

// How a convolution is computed.
struct Way {
  const char* name;
  ConvolutionLimits limits;
};

// By the usual pieces; by tiny ones, with few weights at a time; by loops whose sums take rounds.
std::vector<Way> WaysFor(const Case& c) {
  std::vector<Way> ways = {{"usual", {}}};
  if (NumElements(c.ImageDims()) > 100'000) return ways;
  ways.push_back({"small pieces",
                  {.operations = 500, .most_operations = 500, .elements = 100, .weights = 300}});
  ways.push_back({"rows", {.operations = 3000, .most_operations = 3000}});
  ways.push_back({"few weights", {.weights = 100}});
  ways.push_back({"loops", {.loop_operations = 50, .loop_results = 7, .loops = true}});
  return ways;
}

// Strides of weights that are stored row-major, with the outputs innermost, and with the channels
// innermost; an empty one is row-major.
std::vector<Dims> WeightOrders(const Case& c) {
  const Dims dims = c.WeightDims();
  std::vector<Dims> orders = {{}};
  for (const Dims& strides :
       {program::OutputsLastStrides(dims), program::ChannelsLastStrides(dims)}) {
    if (strides != program::RowMajorStrides(dims)) orders.push_back(strides);
  }
  return orders;
}

// Runs in each way; `output` is then as `expected`.
void RunInAllWays(const Case& c, TestIpu& ipu, const std::string& text, uint32_t output,
                  const Values& expected, program::v1::DataType type) {
  ipu.Run(text);
  ExpectRounded(ipu.Read(output), expected, type);
  program::v1::Instruction instruction;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction));
  for (const Way& way : WaysFor(c)) {
    SCOPED_TRACE(way.name);
    ipu.Write(output, Values(expected.size(), 77));
    const auto kernel = PrepareConvolution(ipu.proto(), instruction, way.limits);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const absl::Status status = RunPhases(*kernel, ipu.Arena());
    ASSERT_TRUE(status.ok()) << status;
    ExpectRounded(ipu.Read(output), expected, type);
  }
}

// Whole numbers: all sums are exact, whatever their order.
TEST_P(ConvolutionTest, Forward) {
  const Case& c = shape();
  const Values x = RandomIntegers(c.ImageDims(), 1, -2, 2),
               w = RandomIntegers(c.WeightDims(), 2, -2, 2);
  Values expected(NumElements(c.ResultDims()));
  ForProducts(c, [&](size_t i, size_t k, size_t r) { expected[r] += x[i] * w[k]; });
  for (const Dims& order : WeightOrders(c)) {
    TestIpu ipu;
    const uint32_t image = ipu.AddImage(type(), c.ImageDims(), x),
                   weights = ipu.Add(type(), c.WeightDims(), w, false, order),
                   result = ipu.AddImage(type(), c.ResultDims());
    const std::string text = absl::StrCat(c.Attributes("FORWARD"), " inputs:[", image, ",", weights,
                                          "] outputs:", result);
    RunInAllWays(c, ipu, text, result, expected, type());
  }
}

TEST_P(ConvolutionTest, InputGradient) {
  const Case& c = shape();
  const Values dy = RandomIntegers(c.ResultDims(), 1, -2, 2),
               w = RandomIntegers(c.WeightDims(), 2, -2, 2);
  Values expected(NumElements(c.ImageDims()));
  ForProducts(c, [&](size_t i, size_t k, size_t r) { expected[i] += dy[r] * w[k]; });
  for (const Dims& order : WeightOrders(c)) {
    TestIpu ipu;
    const uint32_t gradient = ipu.AddImage(type(), c.ResultDims(), dy),
                   weights = ipu.Add(type(), c.WeightDims(), w, false, order),
                   image = ipu.AddImage(type(), c.ImageDims());
    const std::string text = absl::StrCat(c.Attributes("INPUT_GRADIENT"), " inputs:[", gradient,
                                          ",", weights, "] outputs:", image);
    RunInAllWays(c, ipu, text, image, expected, type());
  }
}

TEST_P(ConvolutionTest, WeightGradient) {
  const Case& c = shape();
  const Values x = RandomIntegers(c.ImageDims(), 1, -1, 1),
               dy = RandomIntegers(c.ResultDims(), 2, -1, 1);
  Values expected(NumElements(c.WeightDims()));
  ForProducts(c, [&](size_t i, size_t k, size_t r) { expected[k] += x[i] * dy[r]; });
  for (const Dims& order : WeightOrders(c)) {
    TestIpu ipu;
    const uint32_t image = ipu.AddImage(type(), c.ImageDims(), x),
                   gradient = ipu.AddImage(type(), c.ResultDims(), dy),
                   weights = ipu.Add(type(), c.WeightDims(), {}, false, order);
    const std::string text = absl::StrCat(c.Attributes("WEIGHT_GRADIENT"), " inputs:[", image, ",",
                                          gradient, "] outputs:", weights);
    RunInAllWays(c, ipu, text, weights, expected, type());
  }
}

TEST(ConvolutionLineTest, PartsAreAboutEqual) {
  for (CutBy by : {CutBy::kResults, CutBy::kImage}) {
    for (int64_t size : {5, 28, 224}) {
      for (int64_t stride : {1, 2, 3}) {
        const int64_t pad = stride - 1;
        ConvolutionShape s;
        s.image = {size};
        s.result = {(size + 2 * pad - 3) / stride + 1};
        s.kernel = {3};
        s.stride = {stride};
        s.dilation = {1};
        s.pad_before = s.pad_after = {pad};
        for (int64_t count = 1; count <= size; ++count) {
          SCOPED_TRACE(absl::StrCat(size, " pixels, steps of ", stride, ", ", count, " parts"));
          ConvolutionLine line(s, 0, by);
          line.Cut(count);
          const bool by_result = by == CutBy::kResults;
          // Pixels are shared out in steps, the first and the last of which the padding cuts short.
          const int64_t unit = by_result ? 1 : stride, all = by_result ? s.result[0] : size;
          int64_t least = all, most = 0, next = 0;
          for (int64_t i = 0; i < line.parts; ++i) {
            const ConvolutionPart part = line[i];
            const int64_t n = by_result ? part.result_size : part.image_size;
            EXPECT_EQ(by_result ? part.result : part.image, next);
            next += n;
            if (!by_result && i > 0) {
              EXPECT_EQ((part.image + pad) % stride, 0);
            }
            if (n < unit) continue;
            least = std::min(least, n);
            most = std::max(most, n);
          }
          EXPECT_EQ(next, all);
          EXPECT_LT(most - least, 2 * unit);
          EXPECT_LE(most, std::max(unit, all / count));
        }
      }
    }
  }
}

// However small the pieces are, they have all results, or all of the image, once.
TEST(ConvolutionCutTest, PiecesMakeUpTheWhole) {
  for (int64_t rows : {3, 64, 1000}) {
    for (int64_t kernel : {1, 2, 5}) {
      for (int64_t stride : {1, 2, 7}) {
        for (int64_t pad : {int64_t{0}, kernel - 1}) {
          const int64_t extent = 2 * (kernel - 1) + 1;
          if (rows + pad < extent) continue;
          ConvolutionShape s{.images = 2, .groups = 1, .channels = 3000, .outputs = 8};
          s.image = {rows, 1000};
          s.result = {(rows + pad - extent) / stride + 1, 1000};
          s.kernel = {kernel, 1};
          s.stride = {stride, 1};
          s.dilation = {2, 1};
          s.pad_before = {pad, 0};
          s.pad_after = {0, 0};
          for (CutBy by : {CutBy::kResults, CutBy::kImage}) {
            const bool by_result = by == CutBy::kResults;
            const ConvolutionCut cut(s, by, 1e6, 1 << 27, 1 << 22);
            // Parts of rows are cut alike: the first of each row, or of whole rows, is looked at.
            int64_t next = 0;
            for (size_t i = 0; i < cut.size(); ++i) {
              const ConvolutionPiece p = cut[i];
              const ConvolutionPart &row = p.parts[0], &column = p.parts[1];
              EXPECT_EQ(cut.ExampleOf(cut.GeometryOf(i)).parts[0].result_size, row.result_size);
              if (column.result > 0 || (!by_result && column.image > 0)) continue;
              const int64_t all = by_result ? s.result[0] : s.image[0];
              const int64_t count = by_result ? row.result_size : row.image_size;
              EXPECT_EQ(p.first_image * all + (by_result ? row.result : row.image), next);
              next += p.images * count;
              if (row.result_size <= 0) continue;
              EXPECT_GE(row.pad_before, 0);
              EXPECT_LT(row.pad_before, extent);
              EXPECT_LT(row.pad_after, extent);
              EXPECT_LE(row.image + row.image_size, s.image[0]);
              EXPECT_LE(row.result + row.result_size, s.result[0]);
              EXPECT_EQ((row.image_size + row.pad_before + row.pad_after - extent) / stride + 1,
                        row.result_size);
            }
            EXPECT_EQ(next, 2 * (by_result ? s.result[0] : s.image[0]));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace vpod::engine
