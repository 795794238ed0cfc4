#include "device/arch/hardware.h"
#include "device/model/op_prices.h"
#include "device/program/op_rows.h"

namespace vpod::model {

const PriceDef* FindPrice(Instruction::StepCase kind) {
  static const auto* const table = new program::OpRows<PriceDef>{
      CollectivePrices,  ControlPrices, Conv2dPrices,  DataMovementPrices,
      ElementwisePrices, LossPrices,    MatMulPrices,  OptimizerPrices,
      PoolPrices,        ReducePrices,  TransferPrices};
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
  Cost cost = FindPrice(instruction.step_case())
                  ->price(instruction, PriceContext(executable, ipu, topology));
  cost.compute += Cycles(arch::kControlCyclesPerStep);
  return cost;
}

Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology) {
  Cost total;
  program::ForEachInstruction(executable.programs(program).blocks(ipu).instructions(), 1,
                              [&](const Instruction& instruction, uint64_t times) {
                                total += Price(executable, ipu, instruction, topology) * times;
                              });
  return total;
}

}  // namespace vpod::model
