// A backend library for collectives_test: the second of three instances, whose peers agree with
// everything. A message is received as a one and whatever was there.
#include <limits>
#include <stdexcept>

#include "client/popdist/backend_plugin.hpp"

namespace {

class MiddleBackend : public popdist::Backend {
 public:
  void initialize() override {}
  void finalize() override {}
  uint32_t numInstances() override { return 3; }
  uint32_t instanceIndex() override { return 1; }
  void send(const void*, size_t bytes, uint32_t, uint32_t) override { Check(bytes); }
  void receive(void* data, size_t bytes, uint32_t, uint32_t) override {
    Check(bytes);
    *static_cast<char*>(data) = 1;
  }

 private:
  // As MPI counts.
  static void Check(size_t bytes) {
    if (bytes > static_cast<size_t>(std::numeric_limits<int>::max()))
      throw std::length_error("a message of more than 2 GiB");
  }
};

}  // namespace

extern "C" popdist::Backend* popdist_backend_v1() {
  static MiddleBackend backend;
  return &backend;
}
