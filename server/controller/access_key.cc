#include "server/controller/access_key.h"

#include <openssl/evp.h>

#include "device/base/random_id.h"
#include "device/base/secret.h"

namespace vpod::controller {
namespace {

constexpr size_t kKeyLength = 11;  // spec/vipu.md 8.3
constexpr absl::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

// Cost of RFC 7914 for interactive use; a key is random, so it guards against nothing but a
// stolen database and years of patience.
constexpr uint64_t kCost = 1 << 14, kBlockSize = 8, kParallel = 1, kMaxBytes = 64 << 20;

// Empty when there is not enough memory.
std::string Scrypt(absl::string_view key, absl::string_view salt) {
  std::string hash(32, '\0');
  const int done =
      EVP_PBE_scrypt(key.data(), key.size(), reinterpret_cast<const unsigned char*>(salt.data()),
                     salt.size(), kCost, kBlockSize, kParallel, kMaxBytes,
                     reinterpret_cast<unsigned char*>(hash.data()), hash.size());
  return done == 1 ? hash : "";
}

}  // namespace

std::string NewAccessKey() {
  std::string key;
  while (key.size() < kKeyLength) {
    for (const char byte : base::RandomBytes(kKeyLength)) {
      // 6 bits a character; the one value beyond the alphabet is drawn again, so that all
      // characters are equally likely.
      const size_t index = static_cast<unsigned char>(byte) & 63u;
      if (index < kAlphabet.size() && key.size() < kKeyLength) key += kAlphabet[index];
    }
  }
  return key;
}

absl::StatusOr<KeyHash> HashAccessKey(absl::string_view key) {
  KeyHash kept;
  kept.salt = base::RandomBytes(16);
  kept.hash = Scrypt(key, kept.salt);
  if (kept.hash.empty()) return absl::ResourceExhaustedError("no memory to hash an access key");
  return kept;
}

bool IsAccessKey(const KeyHash& kept, absl::string_view key) {
  const std::string hash = Scrypt(key, kept.salt);
  return !hash.empty() && base::IsSecret(kept.hash, hash);
}

}  // namespace vpod::controller
