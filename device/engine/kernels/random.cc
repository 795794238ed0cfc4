#include <cmath>
#include <cstring>
#include <numbers>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

using program::v1::Random;

// Blocks of four words that are made together, side by side so that the loops vectorise.
constexpr size_t kLanes = 64;
constexpr size_t kWords = 4;

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): kLanes
// blocks, whose counters are `counter` with the first word counted up. words[w][lane].
VPOD_SIMD void Philox(const uint32_t* key, const uint32_t* counter, uint32_t (*words)[kLanes]) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    words[0][lane] = counter[0] + static_cast<uint32_t>(lane);
    words[1][lane] = counter[1];
    words[2][lane] = counter[2];
    words[3][lane] = counter[3];
  }
  uint32_t key0 = key[0], key1 = key[1];
  for (int round = 0; round < 10; ++round) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t a = kMultiply0 * words[0][lane], b = kMultiply1 * words[2][lane];
      words[0][lane] = static_cast<uint32_t>(b >> 32) ^ words[1][lane] ^ key0;
      words[2][lane] = static_cast<uint32_t>(a >> 32) ^ words[3][lane] ^ key1;
      words[1][lane] = static_cast<uint32_t>(b);
      words[3][lane] = static_cast<uint32_t>(a);
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

// With the mantissa bits of the type: rounded to it, it stays below 1.
float Uniform(uint32_t bits, bool half) {
  return half ? static_cast<float>(bits >> 21) * 0x1p-11f
              : static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Two normal values of two words (Box and Muller).
void Normal(uint32_t a, uint32_t b, float* out) {
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(a) + 1) * 0x1p-32));
  const double angle = 2 * std::numbers::pi * static_cast<double>(b) * 0x1p-32;
  out[0] = static_cast<float>(radius * std::cos(angle));
  out[1] = static_cast<float>(radius * std::sin(angle));
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
    uint32_t words[kWords][kLanes];
    float made[kBlock];
    for (size_t block = blocks.begin(chunk); block < blocks.end(chunk); ++block) {
      const uint32_t start[kWords] = {static_cast<uint32_t>(block * kLanes), number,
                                      *counter.As<uint32_t>(at), *stream.As<uint32_t>(at)};
      Philox(seed.As<uint32_t>(at), start, words);
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
