// Sizes that no test between real instances reaches.
#include "client/popdist/collectives.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace popdist {
namespace {

// Memory that costs nothing until it is touched.
char* Reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<char*>(memory);
}

TEST(Collectives, AllGatherOfMoreThanAMessageCanBe) {
  registerBackend("client/popdist/libmiddle_backend.so");
  initializeBackend();
  constexpr size_t kEach = size_t{1} << 30, kInstances = 3;
  char* const ours = Reserve(kEach);
  char* const all = Reserve(kInstances * kEach);
  collectives::allGather(ours, all, kEach, Type::UNSIGNED_CHAR);
  for (size_t rank = 0; rank < kInstances; ++rank) EXPECT_EQ(all[rank * kEach], 1) << rank;
  munmap(ours, kEach);
  munmap(all, kInstances * kEach);
  finalizeBackend();
}

}  // namespace
}  // namespace popdist
