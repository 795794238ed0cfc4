// Interface of a communication backend of popdist: messages between the instances of a job. Open
// MPI is built in; a library for registerBackend() derives from Backend and exports
//   extern "C" popdist::Backend* popdist_backend_v1();
// which returns the one object of the process. Methods report failures by throwing popdist_error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace popdist {

class Backend {
 public:
  virtual ~Backend() = default;

  // Called once, and before everything below.
  virtual void initialize() = 0;
  // Called once, at a clean exit only.
  virtual void finalize() = 0;

  virtual uint32_t numInstances() = 0;
  virtual uint32_t instanceIndex() = 0;

  // Blocking. A message goes to the receive() of its sender and tag, in the order of sending, which
  // asks for the same number of bytes, at most 2 GiB. Tags are below kNumTags.
  static constexpr uint32_t kNumTags = 1u << 23;
  virtual void send(const void* data, size_t bytes, uint32_t to, uint32_t tag) = 0;
  virtual void receive(void* data, size_t bytes, uint32_t from, uint32_t tag) = 0;
};

using BackendFactory = Backend* (*)();

}  // namespace popdist
