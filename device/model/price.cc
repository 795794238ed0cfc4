#include "device/arch/hardware.h"
#include "device/model/op_prices.h"
#include "device/program/op_rows.h"

namespace vpod::model {

const PriceDef* FindPrice(program::OpKind kind) {
  static const auto* const table = new program::OpRows<PriceDef>{
      BatchNormPrices,   CollectivePrices, ControlPrices, ConvolutionPrices, DataMovementPrices,
      ElementwisePrices, LossPrices,       MatMulPrices,  OptimizerPrices,   PoolingPrices,
      RandomPrices,      ReducePrices,     TransferPrices};
  return table->Find(kind);
}

Cost& Cost::operator+=(const Cost& other) {
  compute += other.compute;
  exchange += other.exchange;
  sync += other.sync;
  from_host += other.from_host;
  to_host += other.to_host;
  return *this;
}

Cost operator*(Cost cost, uint64_t times) {
  return {cost.compute * times, cost.exchange * times, cost.sync * times, cost.from_host * times,
          cost.to_host * times};
}

Cost Price(const program::v1::Executable& executable, uint32_t ipu, const Instruction& instruction,
           const Topology& topology) {
  Cost cost = FindPrice(instruction.attributes_case())
                  ->price(instruction, PriceContext(executable, ipu, topology));
  cost.compute += Cycles(arch::kControlCyclesPerStep);
  return cost;
}

Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology) {
  Cost total;
  const program::v1::Program& entry = executable.programs(static_cast<int>(program));
  program::ForEachInstruction(executable.ipus(static_cast<int>(ipu)),
                              entry.functions(static_cast<int>(ipu)),
                              [&](const Instruction& instruction, uint64_t times) {
                                total += Price(executable, ipu, instruction, topology) * times;
                              });
  return total;
}

}  // namespace vpod::model
