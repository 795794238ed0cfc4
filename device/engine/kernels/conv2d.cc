#include <memory>

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
  dnnl::reorder reorder;

  void PrepareReorder() {
    if (stored == wanted) return;
    const auto desc = is_output
                          ? dnnl::reorder::primitive_desc(CpuEngine(), wanted, CpuEngine(), stored)
                          : dnnl::reorder::primitive_desc(CpuEngine(), stored, CpuEngine(), wanted);
    reorder = dnnl::reorder(desc);
  }
};

// A prepared pass: primitive, scratchpad and arguments.
struct Pass {
  dnnl::primitive primitive;
  Memory::desc scratchpad;
  std::vector<Argument> arguments;

  absl::Status Run(std::byte* arena) const {
    Scratch& scratch = Scratch::OfThisThread();
    dnnl::stream& stream = StreamOfThisThread();
    std::unordered_map<int, Memory> bound;
    float* result = nullptr;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Argument& argument = arguments[i];
      float* data = argument.is_output ? WriteFloats(argument.operand, arena, i)
                                       : const_cast<float*>(ReadFloats(argument.operand, arena, i));
      if (argument.is_output) result = data;
      if (!argument.reorder) {
        bound.emplace(argument.index, Memory(argument.wanted, CpuEngine(), data));
        continue;
      }
      Memory reordered(argument.wanted, CpuEngine(),
                       scratch.Get(kReorderSlot + i, argument.wanted.get_size()));
      if (!argument.is_output) {
        Memory stored(argument.stored, CpuEngine(), data);
        argument.reorder.execute(stream, stored, reordered);
      }
      bound.emplace(argument.index, std::move(reordered));
    }
    bound.emplace(DNNL_ARG_SCRATCHPAD, Memory(scratchpad, CpuEngine(),
                                              scratch.Get(kScratchpadSlot, scratchpad.get_size())));
    primitive.execute(stream, bound);
    for (const Argument& argument : arguments) {
      if (!argument.is_output) continue;
      if (argument.reorder) {
        Memory stored(argument.stored, CpuEngine(), result);
        argument.reorder.execute(stream, bound.at(argument.index), stored);
      }
      StoreFloats(argument.operand, arena, result);
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

absl::StatusOr<Kernel> PrepareConv2d(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Conv2d& op = instruction.conv2d();
  const Operand a = Resolve(ipu, instruction.inputs(0)), b = Resolve(ipu, instruction.inputs(1)),
                output = Resolve(ipu, instruction.outputs(0));
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    auto pass = std::make_shared<Pass>();
    switch (op.pass()) {
      case program::v1::Conv2d::FORWARD: {
        const Geometry g(a.type.dims, b.type.dims, output.type.dims, op.window());
        const auto desc = ForwardDesc(g);
        pass->primitive = dnnl::convolution_forward(desc);
        pass->scratchpad = desc.scratchpad_desc();
        pass->arguments = {{DNNL_ARG_SRC, a, g.image, desc.src_desc()},
                           {DNNL_ARG_WEIGHTS, b, g.weights, desc.weights_desc()},
                           {DNNL_ARG_DST, output, g.result, desc.dst_desc(), true}};
        break;
      }
      case program::v1::Conv2d::INPUT_GRADIENT: {
        const Geometry g(output.type.dims, b.type.dims, a.type.dims, op.window());
        const dnnl::convolution_backward_data::primitive_desc desc(
            dnnl::convolution_backward_data::desc(dnnl::algorithm::convolution_direct, g.image,
                                                  g.any_weights, g.result, g.strides, g.pad_before,
                                                  g.pad_after),
            UserScratchpad(), CpuEngine(), ForwardDesc(g));
        pass->primitive = dnnl::convolution_backward_data(desc);
        pass->scratchpad = desc.scratchpad_desc();
        pass->arguments = {{DNNL_ARG_DIFF_DST, a, g.result, desc.diff_dst_desc()},
                           {DNNL_ARG_WEIGHTS, b, g.weights, desc.weights_desc()},
                           {DNNL_ARG_DIFF_SRC, output, g.image, desc.diff_src_desc(), true}};
        break;
      }
      default: {
        const Geometry g(a.type.dims, output.type.dims, b.type.dims, op.window());
        const dnnl::convolution_backward_weights::primitive_desc desc(
            dnnl::convolution_backward_weights::desc(dnnl::algorithm::convolution_direct, g.image,
                                                     g.any_weights, g.result, g.strides,
                                                     g.pad_before, g.pad_after),
            UserScratchpad(), CpuEngine(), ForwardDesc(g));
        pass->primitive = dnnl::convolution_backward_weights(desc);
        pass->scratchpad = desc.scratchpad_desc();
        pass->arguments = {
            {DNNL_ARG_SRC, a, g.image, desc.src_desc()},
            {DNNL_ARG_DIFF_DST, b, g.result, desc.diff_dst_desc()},
            {DNNL_ARG_DIFF_WEIGHTS, output, g.weights, desc.diff_weights_desc(), true}};
        break;
      }
    }
    for (Argument& argument : pass->arguments) argument.PrepareReorder();
    return Kernel([pass](std::byte* arena) {
      return Guarded([&]() -> absl::Status { return pass->Run(arena); });
    });
  });
}

}  // namespace

std::vector<KernelDef> Conv2dKernels() { return {{Instruction::kConv2D, PrepareConv2d}}; }

}  // namespace vpod::engine
