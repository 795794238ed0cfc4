#include "client/compiler/weight_transfers.h"

#include "client/compiler/compiler.h"
#include "device/arch/hardware.h"
#include "device/model/tile_plan.h"

namespace vpod::compiler {

WeightTransfers PriceWeightTransfers(const program::Executable& executable,
                                     const model::Topology& topology) {
  WeightTransfers transfers;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    uint64_t bytes = 0;
    for (const program::HostTensor& tensor : executable.host_tensors()) {
      if (tensor.ipu == ipu && !tensor.remote && !IsOptimizerState(tensor.name))
        bytes += tensor.type.bytes();
    }
    const auto cycles = [&](bool to_host) {
      const model::StreamTransfer transfer{
          .to_host = to_host, .bytes = bytes, .tiles = arch::kTilesPerIpu};
      return model::PriceOfStep({transfer}, topology).total();
    };
    transfers.from_host += cycles(false);
    transfers.to_host += cycles(true);
  }
  return transfers;
}

}  // namespace vpod::compiler
