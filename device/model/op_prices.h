// The table of prices: for each op, its cost on one IPU and the code of its vertices. A row is in
// the file of its family.
#pragma once

#include <vector>

#include "device/arch/hardware.h"
#include "device/model/cost.h"

namespace vpod::model {

using program::v1::Instruction;

// An instruction's surroundings: the tensors of its IPU and the job.
class PriceContext {
 public:
  PriceContext(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology)
      : executable_(executable), ipu_(ipu), topology_(topology) {}

  const program::v1::Executable& executable() const { return executable_; }
  uint32_t ipu() const { return ipu_; }
  const Topology& topology() const { return topology_; }

  program::TensorType Type(uint32_t tensor) const {
    return program::TypeOf(
        executable_.ipus(static_cast<int>(ipu_)).tensors(static_cast<int>(tensor)));
  }
  uint64_t Elements(uint32_t tensor) const {
    return static_cast<uint64_t>(Type(tensor).elements());
  }
  bool IsHalf(uint32_t tensor) const { return Type(tensor).type == program::v1::FLOAT16; }
  // An element-by-element vertex over a tensor.
  Cost Elementwise(uint32_t tensor, double cycles_per_vector) const {
    Cost cost;
    cost.compute = ElementwiseCycles(Elements(tensor), Type(tensor).type, cycles_per_vector);
    return cost;
  }

 private:
  const program::v1::Executable& executable_;
  const uint32_t ipu_;
  const Topology& topology_;
};

struct PriceDef {
  program::OpKind kind;
  // Without the control code around every step. The instruction is valid and of this kind.
  Cost (*price)(const Instruction& instruction, const PriceContext& context);
  uint64_t vertex_code_bytes = arch::kOtherVertexCodeBytes;  // on each tile, once per kind
};

// Every op has a row. Null for a kind that is none.
const PriceDef* FindPrice(program::OpKind kind);

// --- By family, for FindPrice ---
std::vector<PriceDef> BatchNormPrices();
std::vector<PriceDef> CollectivePrices();
std::vector<PriceDef> ControlPrices();
std::vector<PriceDef> ConvolutionPrices();
std::vector<PriceDef> DataMovementPrices();
std::vector<PriceDef> ElementwisePrices();
std::vector<PriceDef> LossPrices();
std::vector<PriceDef> MatMulPrices();
std::vector<PriceDef> OptimizerPrices();
std::vector<PriceDef> PoolingPrices();
std::vector<PriceDef> RandomPrices();
std::vector<PriceDef> ReducePrices();
std::vector<PriceDef> TransferPrices();

}  // namespace vpod::model
