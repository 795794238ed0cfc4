#include "device/engine/kernels/dnnl.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;

// A rank-2 operand, read transposed by its strides.
Memory::desc Describe(const program::Dims& stored, bool transposed) {
  if (transposed)
    return Memory::desc({stored[1], stored[0]}, Memory::data_type::f32, Memory::dims{1, stored[1]});
  return Memory::desc({stored[0], stored[1]}, Memory::data_type::f32, Memory::dims{stored[1], 1});
}

absl::StatusOr<Kernel> PrepareMatMul(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::MatMul& op = instruction.mat_mul();
  const Operand a = Resolve(ipu, instruction.inputs(0)), b = Resolve(ipu, instruction.inputs(1)),
                output = Resolve(ipu, instruction.outputs(0));
  const bool transpose_a = op.transpose_a(), transpose_b = op.transpose_b();
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    const Memory::desc a_desc = Describe(a.type.dims, transpose_a);
    const Memory::desc b_desc = Describe(b.type.dims, transpose_b);
    const Memory::desc out_desc = Describe(output.type.dims, false);
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a_desc, b_desc, out_desc),
                                            UserScratchpad(), CpuEngine());
    const dnnl::matmul primitive(desc);
    return Kernel([=](std::byte* arena) -> absl::Status {
      return Guarded([&]() -> absl::Status {
        const float* left = ReadFloats(a, arena, 0);
        const float* right = ReadFloats(b, arena, 1);
        float* out = WriteFloats(output, arena, 2);
        std::byte* scratchpad =
            Scratch::OfThisThread().Get(kScratchpadSlot, desc.scratchpad_desc().get_size());
        primitive.execute(
            StreamOfThisThread(),
            {{DNNL_ARG_SRC, Memory(a_desc, CpuEngine(), const_cast<float*>(left))},
             {DNNL_ARG_WEIGHTS, Memory(b_desc, CpuEngine(), const_cast<float*>(right))},
             {DNNL_ARG_DST, Memory(out_desc, CpuEngine(), out)},
             {DNNL_ARG_SCRATCHPAD, Memory(desc.scratchpad_desc(), CpuEngine(), scratchpad)}});
        StoreFloats(output, arena, out);
        return absl::OkStatus();
      });
    });
  });
}

}  // namespace

std::vector<KernelDef> MatMulKernels() { return {{Instruction::kMatMul, PrepareMatMul}}; }

}  // namespace vpod::engine
