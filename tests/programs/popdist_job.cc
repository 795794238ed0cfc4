// Checks popdist's collectives between the instances that poprun started; prints "ok" on each.
//   popdist_job              all types and operations, in an order of its own on each instance
//   popdist_job --mismatch   instance 1 sends another count: every instance must report it
//   popdist_job --members    instance 1 registers another communicator: the same
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "client/popdist/collectives.hpp"
#include "client/popdist/context.hpp"

namespace {

using popdist::Type;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "popdist_job: wrong: %s\n", what);
  std::exit(1);
}

void Sum(unsigned index, unsigned count, const std::string& id) {
  float value = static_cast<float>(index + 1);
  popdist::collectives::allReduceSum(&value, 1, Type::FLOAT, id);
  Require(value == static_cast<float>(count * (count + 1) / 2), "allReduceSum");
}

void Check(unsigned index, unsigned count) {
  int number = index == 2 ? 77 : -1;
  popdist::collectives::broadcast(&number, 1, Type::INT, 2, "root two");
  Require(number == 77, "broadcast");

  std::vector<unsigned> all(2 * count);
  const unsigned ours[2] = {index, index * 10};
  popdist::collectives::allGather(ours, all.data(), 2, Type::UNSIGNED_INT, "gather");
  all[2 * index] = index, all[2 * index + 1] = index * 10;
  popdist::collectives::allGather(nullptr, all.data(), 2, Type::UNSIGNED_INT, "gather in place",
                                  true);
  for (unsigned i = 0; i < count; ++i)
    Require(all[2 * i] == i && all[2 * i + 1] == i * 10, "allGather");

  // Halves are added in float and rounded once: 2048 + 1 + 1 + 0 loses nothing.
  _Float16 half = static_cast<_Float16>(index == 0 ? 2048 : index == 3 ? 0 : 1);
  popdist::collectives::allReduceSum(&half, 1, Type::HALF, "half");
  Require(static_cast<float>(half) == 2050.0f, "half sum");
}

// Instances 1 and 3 under an id of their own, then 0 and 1 under the default one.
void CheckCommunicators(unsigned index) {
  popdist::registerCommunicator({1, 3}, "odd");
  popdist::registerCommunicator({0, 1});
  if (index == 1 || index == 3) {
    int number = static_cast<int>(index);
    popdist::collectives::broadcast(&number, 1, Type::INT, 1, "odd");
    Require(number == 3, "broadcast among the odd");
    unsigned both[2] = {};
    popdist::collectives::allGather(&index, both, 1, Type::UNSIGNED_INT, "odd");
    Require(both[0] == 1 && both[1] == 3, "allGather among the odd");
  }
  if (index < 2) {
    float value = static_cast<float>(index + 1);
    popdist::collectives::allReduceSum(&value, 1, Type::FLOAT, "any");
    Require(value == 3, "allReduceSum of two");
  } else {
    float value = 0;
    try {
      popdist::collectives::allReduceSum(&value, 1, Type::FLOAT, "any");
      Require(false, "a collective of others");
    } catch (const popdist::popdist_error&) {
    }
  }
  popdist::registerCommunicator({0, 1, 2, 3});
}

}  // namespace

int main(int argc, char** argv) {
  const bool mismatch = argc > 1 && std::strcmp(argv[1], "--mismatch") == 0;
  const bool members = argc > 1 && std::strcmp(argv[1], "--members") == 0;
  const unsigned index = popdist::getInstanceIndex(), count = popdist::getNumInstances();
  try {
    popdist::registerDefaultBackend();
    popdist::initializeBackend();
    if (mismatch) {
      std::vector<float> values(4);
      popdist::collectives::allReduceSum(values.data(), index == 1 ? 3 : 4, Type::FLOAT, "uneven");
    } else if (members) {
      popdist::registerCommunicator(index == 1 ? std::set<uint32_t>{0} : std::set<uint32_t>{0, 1},
                                    "uneven");
    } else {
      CheckCommunicators(index);
      Check(index, count);
      Sum(index, count, "a");
    }
    popdist::finalizeBackend();
  } catch (const popdist::popdist_error& error) {
    std::printf("instance %u: %s\n", index, error.what());
    std::fflush(stdout);
    popdist::finalizeBackend();
    return mismatch || members ? 0 : 1;
  }
  std::printf("instance %u ok\n", index);
  return 0;
}
