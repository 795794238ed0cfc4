// Chunks are short and memory is bounded, however large operands are: kernels of adversarial shapes
// are prepared, not run.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "device/engine/kernels/convolution.h"
#include "device/engine/kernels/kernel_test_util.h"
#include "device/program/op.h"

namespace vpod::engine {
namespace {

using program::v1::Convolution;
using program::v1::Instruction;

constexpr size_t kMiB = size_t{1} << 20;

// An instruction and its operands, for which no memory is taken. Tensors are written "h[4,5]": h,
// f, i, u, b are float16, float32, INT32, UINT32 and BOOL; ^ behind them means channels innermost,
// w a wide accumulator, e that all elements are one (strides of 0).
class Prepared {
 public:
  Prepared(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
           const std::string& attributes) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(attributes, &instruction_))
        << attributes;
    for (const std::string& tensor : inputs) instruction_.add_inputs(Add(tensor));
    for (const std::string& tensor : outputs) instruction_.add_outputs(Add(tensor));
    if (instruction_.has_remote_load() || instruction_.has_remote_store()) {
      const program::v1::Tensor& row = ipu_.tensors(
          static_cast<int>(outputs.empty() ? instruction_.inputs(0) : instruction_.outputs(0)));
      program::v1::RemoteBuffer* buffer = ipu_.add_remote_buffers();
      buffer->set_name("buffer");
      buffer->set_type(row.type());
      *buffer->mutable_dims() = row.dims();
      buffer->set_rows(7);
    }
  }
  // Makes an output lie where an input does.
  Prepared& InPlace(int output, int input) {
    instruction_.set_outputs(output, instruction_.inputs(input));
    return *this;
  }

  const Instruction& instruction() const { return instruction_; }
  absl::Status Validate() const {
    program::v1::Executable executable;
    executable.set_ipus_per_replica(1);
    *executable.add_ipus() = ipu_;
    *executable.mutable_ipus(0)->add_functions()->add_instructions() = instruction_;
    executable.add_programs()->set_name("test");
    executable.mutable_programs(0)->add_functions(0);
    return program::Validate(executable, {});
  }
  Kernel Prepare() const {
    auto kernel = PrepareKernel(ipu_, instruction_);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? *std::move(kernel) : Kernel();
  }

 private:
  uint32_t Add(const std::string& text) {
    program::v1::Tensor* tensor = ipu_.add_tensors();
    const std::map<char, program::v1::DataType> types = {
        {'h', FLOAT16}, {'f', FLOAT32}, {'i', INT32}, {'u', UINT32}, {'b', BOOL}};
    tensor->set_type(types.at(text[0]));
    const size_t end = text.find(']');
    const std::string dims_text = text.substr(2, end - 2);
    Dims dims;
    for (absl::string_view dim : absl::StrSplit(dims_text, ',', absl::SkipEmpty())) {
      int64_t size = 0;
      EXPECT_TRUE(absl::SimpleAtoi(dim, &size)) << text;
      dims.push_back(size);
    }
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    for (const char flag : text.substr(end + 1)) {
      if (flag == 'w') tensor->set_wide_accumulator(true);
      const Dims strides = flag == '^' ? program::ChannelsLastStrides(dims) : Dims(dims.size(), 0);
      if (flag != 'w' && strides != program::RowMajorStrides(dims))
        tensor->mutable_strides()->Add(strides.begin(), strides.end());
    }
    tensor->set_offset(ipu_.arena_bytes());
    ipu_.set_arena_bytes((ipu_.arena_bytes() + program::ArenaBytes(*tensor) + 63) / 64 * 64);
    return static_cast<uint32_t>(ipu_.tensors_size() - 1);
  }

  program::v1::Ipu ipu_;
  Instruction instruction_;
};

// No chunk has more operations than one may, and memory beside the operands is small.
void ExpectBounded(const std::string& name, const Kernel& kernel) {
  for (size_t i = 0; i < kernel.phases.size(); ++i) {
    const Phase& phase = kernel.phases[i];
    EXPECT_GE(phase.chunks, 1u) << name;
    EXPECT_GE(phase.rounds, 1u) << name;
    EXPECT_LE(phase.operations, kOperationsOfAChunk) << name << ", phase " << i;
  }
  EXPECT_LE(kernel.scratch_bytes, 160 * kMiB) << name << ", of each thread";
  EXPECT_LE(kernel.shared_bytes + kernel.packed_bytes, 320 * kMiB) << name;
}

// Operands of 800 MB, or of as many elements as fit; rows, windows and products that are as long.
std::vector<std::pair<std::string, Prepared>> LargeOperands() {
  const std::string window =
      "window{kernel:20000 kernel:20000 stride:1 stride:1 dilation:1 dilation:1 "
      "pad_before:0 pad_before:0 pad_after:0 pad_after:0}";
  const std::string gaps = "window{kernel:2 stride:1 dilation:30000001 pad_before:0 pad_after:0}";
  const std::string sizes = " image_size:20000 image_size:20000";
  return {
      {"fill", {{}, {"h[400000000]"}, "fill{value:1}"}},
      {"copy", {{"h[200000000]"}, {"h[200000000]"}, "copy{}"}},
      {"cast", {{"h[150000000]"}, {"f[150000000]"}, "cast{type:FLOAT32}"}},
      {"unary", {{"h[200000000]"}, {"h[200000000]"}, "unary{operator:EXPONENT}"}},
      {"binary", {{"h[1,400000000]", "h[]"}, {"h[1,400000000]"}, "binary{operator:ADD}"}},
      {"select", {{"b[100000000]", "h[100000000]", "h[100000000]"}, {"h[100000000]"}, "select{}"}},
      {"map", {{"h[200000000]"}, {"h[200000000]"}, "map{steps{unary{operator:TANH} inputs:0}}"}},
      {"transpose", {{"h[20000,10000]"}, {"h[10000,20000]"}, "transpose{permutation:[1,0]}"}},
      {"slice", {{"h[400000000]"}, {"h[50000000]"}, "slice{begin:7 size:50000000 step:8}"}},
      {"dynamic_slice",
       {{"h[4,100000000]", "i[1]"}, {"h[2,100000000]"}, "dynamic_slice{axes:0 size:2}"}},
      {"dynamic_update",
       Prepared({"h[4,50000000]", "h[2,50000000]", "i[1]"}, {"h[]"}, "dynamic_update{axes:0}")
           .InPlace(0, 0)},
      {"remote_load", {{"i[]"}, {"h[60000000]"}, "remote_load{buffer:0}"}},
      {"remote_store", {{"h[60000000]", "i[]"}, {}, "remote_store{buffer:0}"}},
      {"expand", {{"h[1]"}, {"h[400000000]"}, "expand{dims:400000000}"}},
      {"pad", {{"h[200000000]"}, {"h[200000002]"}, "pad{before:1 after:1 value:0}"}},
      {"concat", {{"h[100000000]", "h[100000000]"}, {"h[200000000]"}, "concat{axis:0}"}},
      {"reduce, one result", {{"h[400000000]"}, {"h[]"}, "reduce{operator:SUM axes:0}"}},
      {"reduce, as many terms as there may be",
       {{"h[2147483648]e"}, {"h[]"}, "reduce{operator:MAX axes:0}"}},
      {"reduce, integers", {{"i[2147483648]e"}, {"i[]"}, "reduce{operator:SUM axes:0}"}},
      {"reduce, long rows", {{"h[3,130000000]"}, {"h[3]"}, "reduce{operator:MEAN axes:1}"}},
      {"arg_max, one row", {{"h[1,400000000]"}, {"i[1]"}, "arg_max{}"}},
      {"arg_max, short rows", {{"h[100000000,2]"}, {"i[100000000]"}, "arg_max{}"}},
      {"mat_mul, large b", {{"h[16,20000]", "h[20000,20000]"}, {"h[16,20000]"}, "mat_mul{}"}},
      {"mat_mul, large b, few rows",
       {{"h[1,400]", "h[400,1000000]"}, {"h[1,1000000]"}, "mat_mul{}"}},
      {"mat_mul, large transposed b, few rows",
       {{"h[1,400]", "h[1000000,400]"}, {"h[1,1000000]"}, "mat_mul{transpose_b:true}"}},
      {"mat_mul, large a", {{"h[1000000,400]", "h[400,1]"}, {"h[1000000,1]"}, "mat_mul{}"}},
      {"mat_mul, long sum", {{"h[1,200000000]", "h[200000000,1]"}, {"h[1,1]"}, "mat_mul{}"}},
      {"mat_mul, outer product", {{"h[20000,1]", "h[1,20000]"}, {"h[20000,20000]"}, "mat_mul{}"}},
      {"mat_mul, many products",
       {{"h[4000000,4,8]", "h[4000000,8,4]"}, {"h[4000000,4,4]"}, "mat_mul{}"}},
      {"mat_mul, some large products",
       {{"h[64,1000,2000]", "h[64,2000,1000]"}, {"h[64,1000,1000]"}, "mat_mul{}"}},
      {"softmax, one row", {{"h[1,200000000]"}, {"h[1,200000000]"}, "softmax{}"}},
      {"softmax, short rows", {{"h[100000000,2]"}, {"h[100000000,2]"}, "softmax{}"}},
      {"softmax_gradient, one row",
       {{"h[130000000]", "h[130000000]"}, {"h[130000000]"}, "softmax_gradient{}"}},
      {"layer_norm, one row",
       {{"h[1,100000000]", "h[100000000]", "h[100000000]"},
        {"h[1,100000000]", "f[1]", "f[1]"},
        "layer_norm{epsilon:1}"}},
      {"layer_norm_gradient, one row",
       {{"h[1,100000000]", "h[1,100000000]", "f[1]", "f[1]", "h[100000000]"},
        {"h[1,100000000]"},
        "layer_norm_gradient{}"}},
      {"gather, one slice", {{"h[2,200000000]", "i[1]"}, {"h[1,200000000]"}, "gather{axis:0}"}},
      {"gather, many indices", {{"h[2]", "i[100000000]"}, {"h[100000000]"}, "gather{axis:0}"}},
      {"scatter, one slice",
       {{"h[2,100000000]", "i[1]", "h[1,100000000]"},
        {"h[2,100000000]"},
        "scatter{combine:SET axis:0}"}},
      {"scatter, many indices",
       Prepared({"f[2]", "i[100000000]", "f[100000000]"}, {"f[]"}, "scatter{combine:ADD axis:0}")
           .InPlace(0, 0)},
      {"scatter, many short axes", Prepared({"f[50000000,1]", "i[50000000,1]", "f[50000000,1]"},
                                            {"f[]"}, "scatter{combine:ADD axis:1 along:true}")
                                       .InPlace(0, 0)},
      {"iota", {{}, {"f[200000000]"}, "iota{type:FLOAT32 dims:200000000}"}},
      {"max_pool, one window",
       {{"h[1,1,20000,20000]"}, {"h[1,1,1,1]", "i[1,1,1,1]"}, "max_pool{" + window + "}"}},
      {"max_pool, one pixel",
       {{"h[1,100000000,1]"},
        {"h[1,100000000,1]", "i[1,100000000,1]"},
        "max_pool{window{kernel:1 stride:1 dilation:1 pad_before:0 pad_after:0}}"}},
      {"max_pool_gradient, one window",
       {{"h[1,1,1,1]", "i[1,1,1,1]"},
        {"h[1,1,20000,20000]"},
        "max_pool_gradient{" + window + sizes + "}"}},
      {"max_pool_gradient, gaps",
       {{"h[1,1,30000000]", "i[1,1,30000000]"},
        {"h[1,1,60000001]"},
        "max_pool_gradient{" + gaps + " image_size:60000001}"}},
      {"average_pool, one window",
       {{"h[1,1,20000,20000]"}, {"h[1,1,1,1]"}, "average_pool{" + window + "}"}},
      {"average_pool_gradient, one window",
       {{"h[1,1,1,1]"}, {"h[1,1,20000,20000]"}, "average_pool_gradient{" + window + sizes + "}"}},
      {"softmax_cross_entropy, one row",
       {{"h[1,200000000]", "i[1]"}, {"h[1]", "h[1,200000000]"}, "softmax_cross_entropy{}"}},
      {"softmax_cross_entropy, short rows",
       {{"h[40000000,4]", "i[40000000]"},
        {"h[40000000]", "h[40000000,4]"},
        "softmax_cross_entropy{}"}},
      {"softmax_cross_entropy_gradient, one row",
       {{"h[1,200000000]", "i[1]", "h[1]"},
        {"h[1,200000000]"},
        "softmax_cross_entropy_gradient{}"}},
      {"batch_norm, long rows",
       {{"h[64,2000000]", "f[2000000]", "f[2000000]"},
        {"h[64,2000000]", "f[2000000]", "f[2000000]"},
        "batch_norm{epsilon:1}"}},
      {"batch_norm, many rows",
       {{"h[200000000,1]", "f[1]", "f[1]"},
        {"h[200000000,1]", "f[1]", "f[1]"},
        "batch_norm{epsilon:1}"}},
      {"batch_norm_inference, long rows",
       {{"h[32,4000000]", "f[4000000]", "f[4000000]", "f[4000000]", "f[4000000]"},
        {"h[32,4000000]"},
        "batch_norm_inference{epsilon:1}"}},
      {"batch_norm_gradient, long rows",
       {{"h[64,2000000]", "h[64,2000000]", "f[2000000]", "f[2000000]", "f[2000000]"},
        {"h[64,2000000]", "f[2000000]", "f[2000000]"},
        "batch_norm_gradient{epsilon:1}"}},
      {"accumulate",
       Prepared({"f[80000000]w", "f[80000000]"}, {"f[]"}, "accumulate{}").InPlace(0, 0)},
      {"sgd",
       Prepared({"h[200000000]", "h[200000000]", "f[4]", "f[]"}, {"f[]"}, "sgd{gradient_scale:1}")
           .InPlace(0, 0)},
      {"adam",
       Prepared({"h[50000000]", "h[50000000]", "f[5]", "f[]", "f[]", "f[50000000]", "f[50000000]"},
                {"f[]", "f[]", "f[]"}, "adam{gradient_scale:1}")
           .InPlace(0, 0)
           .InPlace(1, 5)
           .InPlace(2, 6)},
      {"rms_prop", Prepared({"h[80000000]", "h[80000000]", "f[5]", "f[]", "f[]", "f[80000000]"},
                            {"f[]", "f[]"}, "rms_prop{gradient_scale:1}")
                       .InPlace(0, 0)
                       .InPlace(1, 5)},
      {"lamb",
       Prepared({"h[50000000]", "h[50000000]", "f[5]", "f[]", "f[]", "f[50000000]", "f[50000000]"},
                {"f[]", "f[]", "f[]"}, "lamb{gradient_scale:1}")
           .InPlace(0, 0)
           .InPlace(1, 5)
           .InPlace(2, 6)},
      {"lamb_moments",
       Prepared({"h[50000000]", "h[50000000]", "f[5]", "f[]", "f[]", "f[50000000]", "f[50000000]"},
                {"f[2]", "f[]", "f[]"}, "lamb_moments{gradient_scale:1}")
           .InPlace(1, 5)
           .InPlace(2, 6)},
      {"lamb_step",
       Prepared({"h[50000000]", "f[2]", "f[5]", "f[]", "f[]", "f[50000000]", "f[50000000]"},
                {"f[]"}, "lamb_step{}")
           .InPlace(0, 0)},
      {"lars", Prepared({"h[80000000]", "h[80000000]", "f[5]", "f[]", "f[]", "f[80000000]"},
                        {"f[]", "f[]"}, "lars{gradient_scale:1}")
                   .InPlace(0, 0)
                   .InPlace(1, 5)},
      {"norm", {{"h[400000000]"}, {"f[]"}, "norm{}"}},
      {"all_finite", {{"h[400000000]"}, {"b[]"}, "all_finite{}"}},
      {"sort, long lines",
       {{"h[4,16777216]"}, {"h[4,16777216]", "i[4,16777216]"}, "sort{axis:1 count:16777216}"}},
      {"sort, short lines",
       {{"h[20000000,4]"}, {"h[20000000,4]", "i[20000000,4]"}, "sort{axis:1 count:4}"}},
      {"cumulate, one line", {{"h[200000000]"}, {"h[200000000]"}, "cumulate{operator:SUM}"}},
      {"cumulate, many lines",
       {{"h[20000000,10]"}, {"h[20000000,10]"}, "cumulate{operator:PRODUCT axis:1}"}},
      {"cumulate, lines side by side",
       {{"h[10000,20000]"}, {"h[10000,20000]"}, "cumulate{operator:SUM axis:0}"}},
      {"update_loss_scale", Prepared({"f[]", "i[]", "b[]"}, {"f[]", "i[]"},
                                     "update_loss_scale{growth:2 backoff:0.5 interval:5}")
                                .InPlace(0, 0)
                                .InPlace(1, 1)},
      {"replica_index", {{}, {"u[]"}, "replica_index{}"}},
      {"random",
       {{"u[2]", "u[]", "u[]"},
        {"h[400000000]"},
        "random{distribution:NORMAL type:FLOAT16 dims:400000000}"}},
  };
}

TEST(ChunksTest, LargeOperandsTakeLittleMemoryAndShortChunks) {
  for (const auto& [name, prepared] : LargeOperands()) {
    SCOPED_TRACE(name);
    const absl::Status valid = prepared.Validate();
    EXPECT_TRUE(valid.ok()) << valid;
    if (valid.ok()) ExpectBounded(name, prepared.Prepare());
  }
}

TEST(ChunksTest, EveryKernelHasALargeOperand) {
  std::set<program::OpKind> seen = {Instruction::kConvolution};  // below
  for (const auto& [name, prepared] : LargeOperands())
    seen.insert(prepared.instruction().attributes_case());
  const auto* oneof = Instruction::descriptor()->FindOneofByName("attributes");
  for (int i = 0; i < oneof->field_count(); ++i) {
    const auto kind = static_cast<program::OpKind>(oneof->field(i)->number());
    if (FindKernel(kind) == nullptr) continue;
    EXPECT_TRUE(seen.contains(kind)) << oneof->field(i)->name();
  }
}

// A convolution in terms of its forward pass, with padding that is the same on both sides.
struct Window {
  const char* name;
  int64_t images, channels, outputs, groups;
  Dims image, kernel, stride, dilation, pad;

  Dims Result() const {
    Dims size;
    for (size_t i = 0; i < image.size(); ++i)
      size.push_back((image[i] + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1);
    return size;
  }
  double Operations() const {
    double operations =
        static_cast<double>(images * outputs) * static_cast<double>(channels / groups);
    const Dims result = Result();
    for (size_t i = 0; i < image.size(); ++i)
      operations *= static_cast<double>(result[i]) * static_cast<double>(kernel[i]);
    return operations;
  }
  Prepared Prepare(Convolution::Pass pass, char type) const {
    const auto tensor = [&](int64_t a, int64_t b, const Dims& sizes, const char* flag) {
      std::string text = absl::StrCat(std::string(1, type), "[", a, ",", b);
      for (int64_t size : sizes) absl::StrAppend(&text, ",", size);
      return absl::StrCat(text, "]", flag);
    };
    const std::string x = tensor(images, channels, image, "^"),
                      w = tensor(outputs, channels / groups, kernel, ""),
                      y = tensor(images, outputs, Result(), "^");
    std::string text = absl::StrCat("convolution{groups:", groups,
                                    " pass:", Convolution::Pass_Name(pass), " window{");
    for (size_t i = 0; i < image.size(); ++i) {
      absl::StrAppend(&text, "kernel:", kernel[i], " stride:", stride[i], " dilation:", dilation[i],
                      " pad_before:", pad[i], " pad_after:", pad[i], " ");
    }
    text += "}";
    for (int64_t size : image) {
      if (pass == Convolution::INPUT_GRADIENT) absl::StrAppend(&text, " image_size:", size);
    }
    text += "}";
    if (pass == Convolution::FORWARD) return {{x, w}, {y}, text};
    if (pass == Convolution::INPUT_GRADIENT) return {{y, w}, {x}, text};
    return {{x, y}, {w}, text};
  }
};

const Window kWindows[] = {
    {"one huge image of one channel", 1, 1, 1, 1, {10000, 10000}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"two rows", 1, 8, 8, 1, {2, 5000000}, {2, 9}, {1, 1}, {1, 1}, {0, 4}},
    {"one row", 1, 16, 16, 1, {1, 5000000}, {1, 5}, {1, 1}, {1, 1}, {0, 2}},
    {"10^13 operations", 1, 64, 64, 1, {846, 846}, {63, 63}, {1, 1}, {1, 1}, {0, 0}},
    {"huge window", 1, 1, 1, 1, {4000, 4000}, {1000, 1000}, {1, 1}, {1, 1}, {0, 0}},
    {"huge window, padded", 1, 2, 2, 1, {1000, 1000}, {1000, 1000}, {1, 1}, {1, 1}, {999, 999}},
    {"wide window, many channels", 1, 256, 256, 1, {200, 200}, {15, 15}, {1, 1}, {1, 1}, {7, 7}},
    {"window of the whole image", 1, 4, 4, 1, {4000, 4000}, {4000, 4000}, {1, 1}, {1, 1}, {0, 0}},
    {"one output of many channels", 1, 10000000, 1, 1, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {0, 0}},
    {"one channel, many outputs", 1, 1, 4000000, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {0, 0}},
    {"800 MB of weights", 1, 4000, 4000, 1, {16, 16}, {5, 5}, {1, 1}, {1, 1}, {2, 2}},
    {"800 MB of weights, pointwise", 4, 20000, 20000, 1, {7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}},
    {"800 MB of weights, groups", 1, 8000, 8000, 4, {16, 16}, {5, 5}, {1, 1}, {1, 1}, {2, 2}},
    {"long line", 1, 1, 1, 1, {10000000}, {7}, {1}, {1}, {3}},
    {"long line, long window", 1, 1, 1, 1, {10000000}, {4096}, {1}, {1}, {0}},
    {"long line, gaps", 1, 2, 2, 1, {10000000}, {3}, {1}, {1000000}, {0}},
    {"volume", 1, 4, 4, 1, {200, 300, 400}, {9, 9, 9}, {1, 1, 1}, {1, 1, 1}, {4, 4, 4}},
    {"flat volume", 2, 32, 32, 1, {1, 1, 1000000}, {1, 1, 31}, {1, 1, 1}, {1, 1, 1}, {0, 0, 15}},
    {"large steps", 1, 8, 8, 1, {4000, 4000}, {5, 5}, {1000, 7}, {1, 1}, {0, 0}},
    {"depthwise", 8, 512, 512, 512, {200, 200}, {31, 31}, {1, 1}, {1, 1}, {15, 15}},
    {"depthwise volume", 1, 64, 64, 64, {64, 64, 64}, {7, 7, 7}, {1, 1, 1}, {1, 1, 1}, {3, 3, 3}},
    {"many images", 1000000, 16, 16, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
};

class ConvolutionChunksTest
    : public testing::TestWithParam<std::tuple<Window, Convolution::Pass, char>> {};

INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionChunksTest,
                         testing::Combine(testing::ValuesIn(kWindows),
                                          testing::Values(Convolution::FORWARD,
                                                          Convolution::INPUT_GRADIENT,
                                                          Convolution::WEIGHT_GRADIENT),
                                          testing::Values('h')));

TEST_P(ConvolutionChunksTest, AreShort) {
  const auto& [window, pass, type] = GetParam();
  const std::string name = absl::StrCat(window.name, ", ", Convolution::Pass_Name(pass));
  SCOPED_TRACE(name);
  const Prepared prepared = window.Prepare(pass, type);
  ASSERT_TRUE(prepared.Validate().ok()) << prepared.Validate();
  const Kernel kernel = prepared.Prepare();
  ExpectBounded(name, kernel);
  double most = 0;
  for (const Phase& phase : kernel.phases) {
    EXPECT_GT(phase.operations, 0) << name;
    most +=
        phase.operations * static_cast<double>(phase.chunks) * static_cast<double>(phase.rounds);
  }
  // Products with padding do not count as operations.
  double padding = 1;
  for (size_t i = 0; i < window.image.size(); ++i) {
    padding *= static_cast<double>(std::min(window.image[i], window.Result()[i])) /
               static_cast<double>(window.Result()[i]);
  }
  EXPECT_GE(most, window.Operations() * padding) << name;
}

}  // namespace
}  // namespace vpod::engine
