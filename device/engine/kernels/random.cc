#include <cmath>
#include <cstring>

#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/philox.h"
#include "device/engine/kernels/vector_math.h"

namespace vpod::engine {
namespace {

using program::v1::Random;

constexpr size_t kLanes = kPhiloxLanes, kWords = kPhiloxWords;

// With the mantissa bits of the type: rounded to it, it stays below 1.
float Uniform(uint32_t bits, bool half) {
  return half ? static_cast<float>(bits >> 21) * 0x1p-11f
              : static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Two normal values of two words (Box and Muller).
void Normal(uint32_t a, uint32_t b, float* out) {
  const double radius = std::sqrt(-2 * Log((static_cast<double>(a) + 1) * 0x1p-32));
  const SinCos angle = SinCosOfTurn(b);
  out[0] = static_cast<float>(radius * angle.cos);
  out[1] = static_cast<float>(radius * angle.sin);
}

absl::StatusOr<Kernel> PrepareRandom(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Random& op = instruction.random();
  const Operand seed = Resolve(ipu, instruction.inputs(0)),
                counter = Resolve(ipu, instruction.inputs(1)),
                stream = Resolve(ipu, instruction.inputs(2)),
                output = Resolve(ipu, instruction.outputs(0));
  constexpr size_t kBlock = kLanes * kWords;  // elements
  const size_t elements = output.elements();
  const Chunking blocks = ChunkItems((elements + kBlock - 1) / kBlock, kBlock);
  const bool half = output.type.type == program::v1::FLOAT16;
  MemoryPlan scratch;
  const FloatBlock floats(output, kBlock, scratch);
  const auto distribution = op.distribution();
  const uint32_t number = op.number();
  return OnePhase(blocks.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    PhiloxBlocks words;
    float made[kBlock];
    for (size_t block = blocks.begin(chunk); block < blocks.end(chunk); ++block) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        words[0][lane] = static_cast<uint32_t>(block * kLanes + lane);
        words[1][lane] = number;
        words[2][lane] = *counter.As<uint32_t>(at);
        words[3][lane] = *stream.As<uint32_t>(at);
      }
      Philox(seed.As<uint32_t>(at), words);
      const size_t first = block * kBlock, n = std::min(kBlock, elements - first);
      if (distribution == Random::BITS) {
        for (size_t i = 0; i < n; ++i)
          output.As<uint32_t>(at)[first + i] = words[i % kWords][i / kWords];
        continue;
      }
      for (size_t lane = 0; lane < kLanes; ++lane) {
        float* four = made + lane * kWords;
        if (distribution == Random::NORMAL) {
          Normal(words[0][lane], words[1][lane], four);
          Normal(words[2][lane], words[3][lane], four + 2);
        } else {
          for (size_t w = 0; w < kWords; ++w) four[w] = Uniform(words[w][lane], half);
        }
      }
      std::memcpy(floats.Write(at, first), made, n * sizeof(float));
      floats.Store(at, first, n);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PrepareReplicaIndex(const program::v1::Ipu& ipu,
                                           const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  return OnePhase(1, 0, [=](const Workspace& at, size_t) {
    *output.As<uint32_t>(at) = at.replica;
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<KernelDef> RandomKernels() {
  return {{Instruction::kRandom, PrepareRandom}, {Instruction::kReplicaIndex, PrepareReplicaIndex}};
}

}  // namespace vpod::engine
