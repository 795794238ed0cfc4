#include <memory>

#include "device/engine/kernels/convolution_weights.h"

namespace vpod::engine {
namespace {

using program::v1::Convolution;
using Point = std::array<int64_t, program::kMaxSpatialRank>;

// The geometry in three spatial dimensions; those that are missing have size 1.
struct Geometry {
  Point image{1, 1, 1}, result{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1},
      before{};

  explicit Geometry(const ConvolutionShape& s) {
    for (size_t i = 0; i < s.rank(); ++i) {
      const size_t to = image.size() - s.rank() + i;
      image[to] = s.image[i];
      result[to] = s.result[i];
      kernel[to] = s.kernel[i];
      stride[to] = s.stride[i];
      dilation[to] = s.dilation[i];
      before[to] = s.pad_before[i];
    }
  }
};

int64_t Size(const Point& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
int64_t IndexOf(const Point& sizes, const Point& at) {
  return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
}
Point PointAt(const Point& sizes, int64_t index) {
  return {index / sizes[2] / sizes[1], index / sizes[2] % sizes[1], index % sizes[2]};
}
void Advance(const Point& sizes, Point& at) {
  for (size_t i = at.size(); i-- > 0;) {
    if (++at[i] < sizes[i]) return;
    at[i] = 0;
  }
}

// Where weights lie, in elements; dimensions of 1 have steps of 1.
struct WeightSteps {
  int64_t output = 1, channel = 1;
  Point tap{1, 1, 1};

  explicit WeightSteps(const Operand& weights) {
    const auto step = [&](size_t axis) {
      return weights.type.dims[axis] == 1 ? 1 : weights.strides[axis];
    };
    output = step(0);
    channel = step(1);
    const size_t rank = weights.strides.size() - 2;
    for (size_t i = 0; i < rank; ++i) tap[tap.size() - rank + i] = step(2 + i);
  }
  int64_t To(const Point& at) const { return at[0] * tap[0] + at[1] * tap[1] + at[2] * tap[2]; }
};

// Each result is a sum over `terms` products, in one order.
struct Loops {
  Convolution::Pass pass;
  Geometry at;
  int64_t groups, channels, outputs;  // of a group
  WeightSteps steps;
  Operand a, b, output;
  size_t results = 0;
  int64_t terms = 0;
  int64_t terms_of_round = 0;
  size_t floats = 0;  // in scratch, the results of a chunk

  // The pixel of the image under an element of the window of a result; false outside.
  bool PixelOf(const Point& result, const Point& tap, Point& pixel) const {
    bool inside = true;
    for (size_t i = 0; i < pixel.size(); ++i) {
      pixel[i] = result[i] * at.stride[i] - at.before[i] + tap[i] * at.dilation[i];
      inside &= pixel[i] >= 0 && pixel[i] < at.image[i];
    }
    return inside;
  }
  // The result that has this pixel under this element of its window; false if none has.
  bool ResultOf(const Point& pixel, const Point& tap, Point& result) const {
    for (size_t i = 0; i < result.size(); ++i) {
      const int64_t top = pixel[i] + at.before[i] - tap[i] * at.dilation[i];
      if (top < 0 || top % at.stride[i] != 0) return false;
      result[i] = top / at.stride[i];
      if (result[i] >= at.result[i]) return false;
    }
    return true;
  }

  // Terms [begin, end) of a result: taps, and for each the channels that are summed, or, for a
  // gradient of weights, results.
  template <class T>
  double Sum(const Workspace& memory, int64_t result, int64_t begin, int64_t end) const {
    const T *left = a.As<T>(memory), *right = b.As<T>(memory);
    return pass == Convolution::FORWARD          ? SumOfResult(left, right, result, begin, end)
           : pass == Convolution::INPUT_GRADIENT ? SumOfPixel(left, right, result, begin, end)
                                                 : SumOfWeight(left, right, result, begin, end);
  }

  template <class T>
  double SumOfResult(const T* x, const T* w, int64_t result, int64_t begin, int64_t end) const {
    const int64_t output = result % (groups * outputs), group = output / outputs;
    const int64_t place = result / (groups * outputs), image = place / Size(at.result);
    const Point point = PointAt(at.result, place % Size(at.result));
    x += image * Size(at.image) * groups * channels + group * channels;
    w += output * steps.output;
    double sum = 0;
    ForTaps(begin, end, channels, [&](const Point& tap, int64_t from, int64_t to) {
      Point pixel{};
      if (!PixelOf(point, tap, pixel)) return;
      const T* channel = x + IndexOf(at.image, pixel) * groups * channels;
      const T* weight = w + steps.To(tap);
      for (int64_t c = from; c < to; ++c)
        sum += static_cast<double>(channel[c]) * static_cast<double>(weight[c * steps.channel]);
    });
    return sum;
  }

  template <class T>
  double SumOfPixel(const T* dy, const T* w, int64_t result, int64_t begin, int64_t end) const {
    const int64_t channel = result % (groups * channels), group = channel / channels;
    const int64_t place = result / (groups * channels), image = place / Size(at.image);
    const Point point = PointAt(at.image, place % Size(at.image));
    dy += image * Size(at.result) * groups * outputs + group * outputs;
    w += group * outputs * steps.output + channel % channels * steps.channel;
    double sum = 0;
    ForTaps(begin, end, outputs, [&](const Point& tap, int64_t from, int64_t to) {
      Point touched{};
      if (!ResultOf(point, tap, touched)) return;
      const T* gradient = dy + IndexOf(at.result, touched) * groups * outputs;
      const T* weight = w + steps.To(tap);
      for (int64_t o = from; o < to; ++o)
        sum += static_cast<double>(gradient[o]) * static_cast<double>(weight[o * steps.output]);
    });
    return sum;
  }

  template <class T>
  double SumOfWeight(const T* x, const T* dy, int64_t weight, int64_t begin, int64_t end) const {
    // Numbered as they lie in memory.
    Point tap{};
    for (size_t i = 0; i < tap.size(); ++i) tap[i] = weight / steps.tap[i] % at.kernel[i];
    const int64_t channel = weight / steps.channel % channels,
                  output = weight / steps.output % (groups * outputs);
    x += output / outputs * channels + channel;
    dy += output;
    const int64_t pixels = Size(at.result);
    Point point = PointAt(at.result, begin % pixels);
    double sum = 0;
    for (int64_t place = begin; place < end; ++place, Advance(at.result, point)) {
      Point pixel{};
      if (!PixelOf(point, tap, pixel)) continue;
      const int64_t from = place / pixels * Size(at.image) + IndexOf(at.image, pixel);
      sum += static_cast<double>(x[from * groups * channels]) *
             static_cast<double>(dy[place * groups * outputs]);
    }
    return sum;
  }

  // Calls `visit(tap, first channel, last + 1)` for terms of taps × channels.
  template <class Visit>
  void ForTaps(int64_t begin, int64_t end, int64_t of_tap, const Visit& visit) const {
    int64_t from = begin % of_tap;
    Point tap = PointAt(at.kernel, begin / of_tap);
    while (begin < end) {
      const int64_t to = std::min(of_tap, from + end - begin);
      visit(tap, from, to);
      begin += to - from;
      from = 0;
      Advance(at.kernel, tap);
    }
  }

  // Results [first, first + n). `sums` are their float64 sums so far, if there are several rounds.
  absl::Status Run(const Workspace& memory, size_t round, size_t first, size_t n,
                   double* sums) const {
    const bool half = output.type.type == program::v1::FLOAT16;
    const int64_t begin = static_cast<int64_t>(round) * terms_of_round,
                  end = std::min(terms, begin + terms_of_round);
    float* finished =
        half ? reinterpret_cast<float*>(memory.scratch + floats) : output.As<float>(memory) + first;
    for (size_t i = 0; i < n; ++i) {
      const auto result = static_cast<int64_t>(first + i);
      double sum =
          half ? Sum<_Float16>(memory, result, begin, end) : Sum<float>(memory, result, begin, end);
      if (begin > 0) sum += sums[i];
      if (end < terms) sums[i] = sum;
      if (end == terms) finished[i] = static_cast<float>(sum);
    }
    if (half && end == terms) Round(memory, first, n, finished);
    return absl::OkStatus();
  }

  void Round(const Workspace& memory, size_t first, size_t n, const float* finished) const {
    _Float16* to = output.As<_Float16>(memory) + first;
    if (!output.rounding.stochastic || pass != Convolution::WEIGHT_GRADIENT) {
      RoundToHalves(output, memory, first, 1, finished, to, n);
      return;
    }
    // Weights may lie in any order.
    for (size_t i = 0; i < n; ++i) {
      const int64_t number = NumberAt(output, static_cast<int64_t>(first + i));
      RoundToHalves(output, memory, static_cast<uint64_t>(number), 1, finished + i, to + i, 1);
    }
  }
};

}  // namespace

Kernel LoopConvolution(const ConvolutionStep& step, const ConvolutionLimits& limits) {
  const ConvolutionShape& s = step.shape;
  const auto loops = std::make_shared<Loops>(Loops{.pass = step.pass,
                                                   .at = Geometry(s),
                                                   .groups = s.groups,
                                                   .channels = s.channels / s.groups,
                                                   .outputs = s.outputs / s.groups,
                                                   .steps = WeightSteps(step.weights()),
                                                   .a = step.a,
                                                   .b = step.b,
                                                   .output = step.output});
  loops->results = step.output.elements();
  loops->terms = step.pass == Convolution::FORWARD          ? loops->channels * s.taps()
                 : step.pass == Convolution::INPUT_GRADIENT ? loops->outputs * s.taps()
                                                            : s.images * s.result_pixels();
  // A result takes some terms' time by itself.
  constexpr int64_t kTermsOfAResult = 8;
  loops->terms_of_round = std::min(loops->terms, limits.loop_operations);
  const int64_t fit = limits.loop_operations / (loops->terms_of_round + kTermsOfAResult);
  const auto per_chunk = static_cast<size_t>(std::max<int64_t>(1, fit));
  MemoryPlan scratch;
  if (step.output.type.type == program::v1::FLOAT16)
    loops->floats = scratch.Add(per_chunk * sizeof(float));
  const auto rounds =
      static_cast<size_t>((loops->terms + loops->terms_of_round - 1) / loops->terms_of_round);
  // In a phase each, if there are sums to keep.
  const Chunking parts{loops->results,
                       rounds > 1 ? static_cast<size_t>(limits.loop_results) : loops->results};
  Kernel kernel;
  for (size_t part = 0; part < parts.chunks(); ++part) {
    const Chunking chunks{parts.size(part), per_chunk};
    const auto run = [loops, chunks, begin = parts.begin(part)](const Workspace& at, size_t i) {
      const size_t chunk = i % chunks.chunks(), first = chunks.begin(chunk);
      return loops->Run(at, i / chunks.chunks(), begin + first, chunks.size(chunk),
                        reinterpret_cast<double*>(at.shared) + first);
    };
    kernel.phases.push_back({.chunks = chunks.chunks(),
                             .run = run,
                             .is_long = true,
                             .rounds = rounds,
                             .operations = static_cast<double>(loops->terms_of_round) *
                                           static_cast<double>(per_chunk)});
  }
  kernel.scratch_bytes = scratch.bytes();
  if (rounds > 1) kernel.shared_bytes = parts.size(0) * sizeof(double);
  return kernel;
}

}  // namespace vpod::engine
