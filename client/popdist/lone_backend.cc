// A backend library for the test of registerBackend: a job of one instance, which has nobody to
// speak to.
#include "client/popdist/backend_plugin.hpp"

namespace {

class LoneBackend : public popdist::Backend {
 public:
  void initialize() override {}
  void finalize() override {}
  uint32_t numInstances() override { return 1; }
  uint32_t instanceIndex() override { return 0; }
  void send(const void*, size_t, uint32_t, uint32_t) override {}
  void receive(void*, size_t, uint32_t, uint32_t) override {}
};

}  // namespace

extern "C" popdist::Backend* popdist_backend_v1() {
  static LoneBackend backend;
  return &backend;
}
