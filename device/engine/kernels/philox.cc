#include "device/engine/kernels/philox.h"

#include "device/base/simd.h"

namespace vpod::engine {
namespace {

VPOD_SIMD void Mix(uint32_t key0, uint32_t key1, uint32_t (*words)[kPhiloxLanes]) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    for (size_t lane = 0; lane < kPhiloxLanes; ++lane) {
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

}  // namespace

void Philox(const uint32_t* key, PhiloxBlocks& blocks) { Mix(key[0], key[1], blocks); }

}  // namespace vpod::engine
