// The convolutions of ResNet-50 at batch 4: our kernel, cut into chunks that two compute threads
// share, with the packing of its weights, against one call of oneDNN on two OpenMP threads, whose
// operands lie as oneDNN wants them and cost nothing to bring there. Medians of seven rounds that
// take turns.
#include <google/protobuf/text_format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <dnnl.hpp>
#include <future>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/engine/compute_pool.h"
#include "device/engine/kernels/kernel.h"
#include "device/program/ops/rules.h"

namespace vpod {
namespace {

using Memory = dnnl::memory;
using program::v1::Convolution;
constexpr int kThreads = 2, kRounds = 7;
constexpr int64_t kBatch = 4;

struct Layer {
  int64_t channels, outputs, kernel, stride, size;  // of the image
  int64_t result() const { return (size + 2 * (kernel / 2) - kernel) / stride + 1; }
};

// The different convolutions of ResNet-50 at 224 × 224.
constexpr Layer kLayers[] = {
    {3, 64, 7, 2, 224},     {64, 64, 1, 1, 56},    {64, 64, 3, 1, 56},    {64, 256, 1, 1, 56},
    {256, 64, 1, 1, 56},    {256, 128, 1, 1, 56},  {128, 128, 3, 2, 56},  {128, 512, 1, 1, 28},
    {256, 512, 1, 2, 56},   {512, 128, 1, 1, 28},  {128, 128, 3, 1, 28},  {512, 256, 1, 1, 28},
    {256, 256, 3, 2, 28},   {256, 1024, 1, 1, 14}, {512, 1024, 1, 2, 28}, {1024, 256, 1, 1, 14},
    {256, 256, 3, 1, 14},   {1024, 512, 1, 1, 14}, {512, 512, 3, 2, 14},  {512, 2048, 1, 1, 7},
    {1024, 2048, 1, 2, 14}, {2048, 512, 1, 1, 7},  {512, 512, 3, 1, 7}};

template <class F>
double Milliseconds(const F& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Our kernel on memory of its own.
class Ours {
 public:
  Ours(const Layer& layer, Convolution::Pass pass) {
    const program::Dims image = {kBatch, layer.channels, layer.size, layer.size},
                        weights = {layer.outputs, layer.channels, layer.kernel, layer.kernel},
                        result = {kBatch, layer.outputs, layer.result(), layer.result()};
    const uint32_t x = Add(image, true), w = Add(weights, false), y = Add(result, true);
    program::v1::Instruction step;
    Convolution& op = *step.mutable_convolution();
    op.set_pass(pass);
    op.set_groups(1);
    for (int i = 0; i < 2; ++i) {
      op.mutable_window()->add_kernel(static_cast<uint32_t>(layer.kernel));
      op.mutable_window()->add_stride(static_cast<uint32_t>(layer.stride));
      op.mutable_window()->add_dilation(1);
      op.mutable_window()->add_pad_before(static_cast<uint32_t>(layer.kernel / 2));
      op.mutable_window()->add_pad_after(static_cast<uint32_t>(layer.kernel / 2));
      if (pass == Convolution::INPUT_GRADIENT) op.add_image_size(layer.size);
    }
    const uint32_t operands[3][3] = {{x, w, y}, {y, w, x}, {x, y, w}};
    const auto& places = operands[pass - Convolution::FORWARD];
    step.add_inputs(places[0]);
    step.add_inputs(places[1]);
    step.add_outputs(places[2]);
    kernel_ = *engine::PrepareKernel(ipu_, step);
    arena_.resize(ipu_.arena_bytes() / sizeof(float) + 16, 0.5f);
    shared_.resize(kernel_.shared_bytes / sizeof(float) + 16);
    packed_.resize(kernel_.packed_bytes / sizeof(float) + 16);
    for (auto& scratch : scratch_) scratch.resize(kernel_.scratch_bytes / sizeof(float) + 16);
  }

  void Run(engine::ComputePool& pool, engine::ComputeQueue& queue) {
    for (const engine::Phase& phase : kernel_.phases) {
      for (size_t round = 0; round < phase.rounds; ++round) {
        const auto run = [&](size_t chunk, int thread) {
          return phase.run(
              {Aligned(arena_), Aligned(shared_), Aligned(packed_), Aligned(scratch_[thread])},
              round * phase.chunks + chunk);
        };
        engine::ChunkedWork work(phase.chunks, run, phase.is_long);
        while (!pool.Run(work, queue, [] { return false; })) {
        }
      }
    }
  }

 private:
  static std::byte* Aligned(std::vector<float>& memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }
  uint32_t Add(const program::Dims& dims, bool image) {
    program::v1::Tensor* tensor = ipu_.add_tensors();
    tensor->set_type(program::v1::FLOAT32);
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    const program::Dims strides = program::ChannelsLastStrides(dims);
    if (image) tensor->mutable_strides()->Add(strides.begin(), strides.end());
    tensor->set_offset(ipu_.arena_bytes());
    ipu_.set_arena_bytes(ipu_.arena_bytes() + (program::ArenaBytes(*tensor) + 63) / 64 * 64);
    return static_cast<uint32_t>(ipu_.tensors_size() - 1);
  }

  program::v1::Ipu ipu_;
  engine::Kernel kernel_;
  std::vector<float> arena_, shared_, packed_, scratch_[kThreads];
};

// One call of oneDNN, which chooses all layouts.
class Theirs {
 public:
  Theirs(const Layer& layer, Convolution::Pass pass) {
    omp_set_num_threads(kThreads);
    const auto desc = [](Memory::dims dims) {
      return Memory::desc(dims, Memory::data_type::f32, Memory::format_tag::any);
    };
    const auto image = desc({kBatch, layer.channels, layer.size, layer.size}),
               weights = desc({layer.outputs, layer.channels, layer.kernel, layer.kernel}),
               result = desc({kBatch, layer.outputs, layer.result(), layer.result()});
    const Memory::dims stride = {layer.stride, layer.stride}, pad(2, layer.kernel / 2);
    const auto kDirect = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kDirect, image, weights, result, stride, pad, pad},
        engine_);
    if (pass == Convolution::FORWARD) {
      primitive_ = dnnl::convolution_forward(forward);
      Bind(DNNL_ARG_SRC, forward.src_desc());
      Bind(DNNL_ARG_WEIGHTS, forward.weights_desc());
      Bind(DNNL_ARG_DST, forward.dst_desc());
    } else if (pass == Convolution::INPUT_GRADIENT) {
      const dnnl::convolution_backward_data::primitive_desc backward(
          {kDirect, image, weights, result, stride, pad, pad}, engine_, forward);
      primitive_ = dnnl::convolution_backward_data(backward);
      Bind(DNNL_ARG_DIFF_SRC, backward.diff_src_desc());
      Bind(DNNL_ARG_WEIGHTS, backward.weights_desc());
      Bind(DNNL_ARG_DIFF_DST, backward.diff_dst_desc());
    } else {
      const dnnl::convolution_backward_weights::primitive_desc backward(
          {kDirect, image, weights, result, stride, pad, pad}, engine_, forward);
      primitive_ = dnnl::convolution_backward_weights(backward);
      Bind(DNNL_ARG_SRC, backward.src_desc());
      Bind(DNNL_ARG_DIFF_WEIGHTS, backward.diff_weights_desc());
      Bind(DNNL_ARG_DIFF_DST, backward.diff_dst_desc());
    }
  }
  void Run() {
    omp_set_num_threads(kThreads);
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void Bind(int argument, const Memory::desc& desc) {
    Memory memory(desc, engine_);
    std::fill_n(static_cast<float*>(memory.get_data_handle()), desc.get_size() / sizeof(float),
                0.5f);
    arguments_.emplace(argument, std::move(memory));
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::primitive primitive_;
  std::unordered_map<int, Memory> arguments_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void RunAll() {
  engine::ComputePool pool(kThreads);
  const auto queue = pool.QueueOf("benchmark");
  const auto on_compute_thread = [&](const auto& task) {
    std::promise<void> done;
    queue->Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  };
  double all_ours = 0, all_theirs = 0;
  for (const Layer& layer : kLayers) {
    for (const auto pass :
         {Convolution::FORWARD, Convolution::INPUT_GRADIENT, Convolution::WEIGHT_GRADIENT}) {
      std::optional<Ours> ours;
      on_compute_thread([&] { ours.emplace(layer, pass); });
      Theirs theirs(layer, pass);
      std::vector<double> our_times, their_times;
      for (int round = 0; round <= kRounds; ++round) {
        const double their_time = Milliseconds([&] { theirs.Run(); });
        double our_time = 0;
        on_compute_thread([&] { our_time = Milliseconds([&] { ours->Run(pool, *queue); }); });
        if (round == 0) continue;  // warms caches and threads
        our_times.push_back(our_time);
        their_times.push_back(their_time);
      }
      const double our_time = Median(our_times), their_time = Median(their_times);
      all_ours += our_time;
      all_theirs += their_time;
      std::printf("%lld-%lld %lldx%lld/%lld @%lld %s: ours %.2f ms oneDNN %.2f ms ratio %.2f\n",
                  static_cast<long long>(layer.channels), static_cast<long long>(layer.outputs),
                  static_cast<long long>(layer.kernel), static_cast<long long>(layer.kernel),
                  static_cast<long long>(layer.stride), static_cast<long long>(layer.size),
                  Convolution::Pass_Name(pass).c_str(), our_time, their_time,
                  their_time / our_time);
    }
  }
  std::printf("all: ours %.1f ms oneDNN %.1f ms ratio %.2f\n", all_ours, all_theirs,
              all_theirs / all_ours);
}

}  // namespace
}  // namespace vpod

int main() {
  vpod::RunAll();
  return 0;
}
