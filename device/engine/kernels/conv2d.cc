#include <algorithm>
#include <memory>
#include <unordered_map>

#include "device/engine/kernels/dnnl.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;
using Tag = dnnl::memory::format_tag;

// Our layouts in oneDNN's logical order: images NCHW, weights OIHW.
Memory::dims ImageDims(const program::Dims& nhwc) { return {nhwc[0], nhwc[3], nhwc[1], nhwc[2]}; }
Memory::dims WeightDims(const program::Dims& hwio) { return {hwio[3], hwio[2], hwio[0], hwio[1]}; }

Memory::desc Described(const Memory::dims& dims, Tag tag) {
  return Memory::desc(dims, Memory::data_type::f32, tag);
}

// An argument of a convolution: where it lies in the arena, in which layout, and the layout the
// primitive wants.
struct Argument {
  int index = 0;  // DNNL_ARG_…
  Operand operand;
  Memory::desc stored;
  Memory::desc wanted;
  bool is_output = false;
  size_t chunk_elements = 0;  // from one chunk to the next; 0: all chunks use the whole tensor
  FloatBlock block = {};
  size_t reorder_at = 0;
  dnnl::reorder reorder = {};

  size_t elements() const { return stored.get_size() / sizeof(float); }

  void Prepare(MemoryPlan& scratch) {
    block = FloatBlock(operand, elements(), scratch);
    if (stored == wanted) return;
    reorder_at = scratch.Add(wanted.get_size());
    const auto desc = is_output
                          ? dnnl::reorder::primitive_desc(CpuEngine(), wanted, CpuEngine(), stored)
                          : dnnl::reorder::primitive_desc(CpuEngine(), stored, CpuEngine(), wanted);
    reorder = dnnl::reorder(desc);
  }
};

// A prepared pass over some images: primitive, scratchpad and arguments.
struct Pass {
  dnnl::primitive primitive;
  Memory::desc scratchpad;
  std::vector<Argument> arguments;
  size_t scratchpad_at = 0;

  void Prepare(MemoryPlan& scratch) {
    for (Argument& argument : arguments) argument.Prepare(scratch);
    scratchpad_at = scratch.Add(scratchpad.get_size());
  }

  absl::Status Run(const Workspace& at, size_t chunk) const {
    dnnl::stream& stream = StreamOfThisThread();
    std::unordered_map<int, Memory> bound;
    float* result = nullptr;
    for (const Argument& argument : arguments) {
      const size_t first = chunk * argument.chunk_elements;
      float* data = argument.is_output ? argument.block.Write(at, first)
                                       : argument.block.ReadWrite(at, first, argument.elements());
      if (argument.is_output) result = data;
      if (!argument.reorder) {
        bound.emplace(argument.index, Memory(argument.wanted, CpuEngine(), data));
        continue;
      }
      Memory reordered(argument.wanted, CpuEngine(), at.scratch + argument.reorder_at);
      if (!argument.is_output) {
        Memory stored(argument.stored, CpuEngine(), data);
        argument.reorder.execute(stream, stored, reordered);
      }
      bound.emplace(argument.index, std::move(reordered));
    }
    bound.emplace(DNNL_ARG_SCRATCHPAD, Memory(scratchpad, CpuEngine(), at.scratch + scratchpad_at));
    primitive.execute(stream, bound);
    for (const Argument& argument : arguments) {
      if (!argument.is_output) continue;
      if (argument.reorder) {
        Memory stored(argument.stored, CpuEngine(), result);
        argument.reorder.execute(stream, bound.at(argument.index), stored);
      }
      argument.block.Store(at, chunk * argument.chunk_elements, argument.elements());
    }
    return absl::OkStatus();
  }
};

// The geometry that all passes of a convolution share.
struct Geometry {
  Memory::dims strides, pad_before, pad_after;
  Memory::desc image, weights, result;
  Memory::desc any_weights;  // oneDNN chooses; images stay NHWC

  Geometry(const program::Dims& image_dims, const program::Dims& weight_dims,
           const program::Dims& result_dims, const program::v1::Window& window)
      : strides{window.stride_h(), window.stride_w()},
        pad_before{window.pad_top(), window.pad_left()},
        pad_after{window.pad_bottom(), window.pad_right()},
        image(Described(ImageDims(image_dims), Tag::nhwc)),
        weights(Described(WeightDims(weight_dims), Tag::hwio)),
        result(Described(ImageDims(result_dims), Tag::nhwc)),
        any_weights(Described(WeightDims(weight_dims), Tag::any)) {}
};

dnnl::convolution_forward::primitive_desc ForwardDesc(const Geometry& g) {
  return {dnnl::convolution_forward::desc(
              dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, g.image,
              g.any_weights, g.result, g.strides, g.pad_before, g.pad_after),
          UserScratchpad(), CpuEngine()};
}

size_t ElementsOfImages(const Operand& operand, size_t images) {
  return images * operand.elements() / static_cast<size_t>(operand.type.dims[0]);
}

// The pass over `images` images of the operands; gradients of weights take all of them.
Pass MakePass(const program::v1::Conv2d& op, const Operand& a, const Operand& b,
              const Operand& output, size_t images) {
  const auto of_some = [&](program::Dims dims) {
    dims[0] = static_cast<int64_t>(images);
    return dims;
  };
  Pass pass;
  switch (op.pass()) {
    case program::v1::Conv2d::FORWARD: {
      const Geometry g(of_some(a.type.dims), b.type.dims, of_some(output.type.dims), op.window());
      const auto desc = ForwardDesc(g);
      pass.primitive = dnnl::convolution_forward(desc);
      pass.scratchpad = desc.scratchpad_desc();
      pass.arguments = {
          {DNNL_ARG_SRC, a, g.image, desc.src_desc(), false, ElementsOfImages(a, images)},
          {DNNL_ARG_WEIGHTS, b, g.weights, desc.weights_desc()},
          {DNNL_ARG_DST, output, g.result, desc.dst_desc(), true,
           ElementsOfImages(output, images)}};
      break;
    }
    case program::v1::Conv2d::INPUT_GRADIENT: {
      const Geometry g(of_some(output.type.dims), b.type.dims, of_some(a.type.dims), op.window());
      const dnnl::convolution_backward_data::primitive_desc desc(
          dnnl::convolution_backward_data::desc(dnnl::algorithm::convolution_direct, g.image,
                                                g.any_weights, g.result, g.strides, g.pad_before,
                                                g.pad_after),
          UserScratchpad(), CpuEngine(), ForwardDesc(g));
      pass.primitive = dnnl::convolution_backward_data(desc);
      pass.scratchpad = desc.scratchpad_desc();
      pass.arguments = {{DNNL_ARG_DIFF_DST, a, g.result, desc.diff_dst_desc(), false,
                         ElementsOfImages(a, images)},
                        {DNNL_ARG_WEIGHTS, b, g.weights, desc.weights_desc()},
                        {DNNL_ARG_DIFF_SRC, output, g.image, desc.diff_src_desc(), true,
                         ElementsOfImages(output, images)}};
      break;
    }
    default: {
      const Geometry g(a.type.dims, output.type.dims, b.type.dims, op.window());
      const dnnl::convolution_backward_weights::primitive_desc desc(
          dnnl::convolution_backward_weights::desc(dnnl::algorithm::convolution_direct, g.image,
                                                   g.any_weights, g.result, g.strides, g.pad_before,
                                                   g.pad_after),
          UserScratchpad(), CpuEngine(), ForwardDesc(g));
      pass.primitive = dnnl::convolution_backward_weights(desc);
      pass.scratchpad = desc.scratchpad_desc();
      pass.arguments = {{DNNL_ARG_SRC, a, g.image, desc.src_desc()},
                        {DNNL_ARG_DIFF_DST, b, g.result, desc.diff_dst_desc()},
                        {DNNL_ARG_DIFF_WEIGHTS, output, g.weights, desc.diff_weights_desc(), true}};
      break;
    }
  }
  return pass;
}

absl::StatusOr<Kernel> PrepareConv2d(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Conv2d& op = instruction.conv2d();
  const Operand a = Resolve(ipu, instruction.inputs(0)), b = Resolve(ipu, instruction.inputs(1)),
                output = Resolve(ipu, instruction.outputs(0));
  // Forward and input gradient: as many images a chunk as make some 2^23 operations.
  const auto images = static_cast<size_t>(a.type.dims[0]);
  const Operand& weights = op.pass() == program::v1::Conv2d::WEIGHT_GRADIENT ? output : b;
  const Operand& result = op.pass() == program::v1::Conv2d::FORWARD          ? output
                          : op.pass() == program::v1::Conv2d::INPUT_GRADIENT ? a
                                                                             : b;
  const double operations = static_cast<double>(ElementsOfImages(result, 1)) *
                            static_cast<double>(weights.elements()) /
                            static_cast<double>(weights.type.dims[3]);
  constexpr double kOperations = 1 << 23;
  const Chunking cut =
      op.pass() == program::v1::Conv2d::WEIGHT_GRADIENT
          ? Chunking{1, 1}
          : Chunking{images,
                     std::clamp<size_t>(static_cast<size_t>(kOperations / operations), 1, images)};
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    MemoryPlan scratch;
    const size_t last = cut.chunks() - 1;
    const auto pass = std::make_shared<Pass>(MakePass(op, a, b, output, cut.size(0)));
    pass->Prepare(scratch);
    auto tail = pass;
    MemoryPlan scratch_of_tail;
    if (cut.size(last) != cut.size(0)) {
      tail = std::make_shared<Pass>(MakePass(op, a, b, output, cut.size(last)));
      tail->Prepare(scratch_of_tail);
      for (Argument& argument : tail->arguments) {
        if (argument.chunk_elements > 0)
          argument.chunk_elements = ElementsOfImages(argument.operand, cut.per_chunk);
      }
    }
    return OnePhase(cut.chunks(), std::max(scratch.bytes(), scratch_of_tail.bytes()),
                    [=](const Workspace& at, size_t chunk) {
                      return Guarded([&]() -> absl::Status {
                        return (chunk == last ? tail : pass)->Run(at, chunk);
                      });
                    });
  });
}

}  // namespace

std::vector<KernelDef> Conv2dKernels() { return {{Instruction::kConv2D, PrepareConv2d}}; }

}  // namespace vpod::engine
