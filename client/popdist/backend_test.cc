// The life of a backend, with a library that is a job of one instance. Open MPI between instances:
// tests/system/poprun_test.
#include "client/popdist/backend.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "client/popdist/collectives.hpp"
#include "client/popdist/context.hpp"

namespace popdist {
namespace {

constexpr char kLibrary[] = "client/popdist/liblone_backend.so";

std::string Error(const std::function<void()>& call) {
  try {
    call();
  } catch (const popdist_error& error) {
    return error.what();
  }
  return "";
}

// One test, because a process has one backend.
TEST(Backend, IsRegisteredInitialisedAndFinalisedOnce) {
  const std::string not_initialised = "the communication backend is not initialised";
  float value = 3;
  EXPECT_EQ(Error(initializeBackend),
            "register the communication backend once before initialising it");
  EXPECT_EQ(Error([] {
              registerBackend("/no/such/library.so");
            }).rfind("cannot load communication backend: /no/such/library.so", 0),
            0u);
  EXPECT_EQ(Error([] { registerBackend("libdl.so.2"); }),
            "libdl.so.2 is not a communication backend: it does not export popdist_backend_v1");

  registerBackend(kLibrary);
  EXPECT_EQ(Error([] { registerBackend(kLibrary); }),
            "the communication backend is registered already");
  EXPECT_EQ(Error(registerDefaultBackend), "the communication backend is registered already");
  EXPECT_FALSE(isBackendInitialized());
  EXPECT_EQ(Error([&] { collectives::allReduceSum(&value, 1, Type::FLOAT); }), not_initialised);
  EXPECT_EQ(Error([] { registerCommunicator({0}); }), not_initialised);
  EXPECT_EQ(Error(finalizeBackend), not_initialised);

  initializeBackend();
  EXPECT_TRUE(isBackendInitialized());
  EXPECT_NE(Error(initializeBackend), "");
  collectives::allReduceSum(&value, 1, Type::FLOAT);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(Error([&] { collectives::broadcast(&value, 1, Type::FLOAT, 1); }),
            "broadcast 'default' from rank 1 of 1");
  EXPECT_EQ(Error([&] { collectives::allReduceSum(&value, size_t{1} << 30, Type::FLOAT); }),
            "collective 'default' is larger than 2 GiB");
  collectives::allReduceSum(nullptr, 0, Type::FLOAT);
  registerCommunicator({0}, "alone");
  EXPECT_EQ(Error([] { registerCommunicator({}, "nobody"); }),
            "communicator 'nobody' needs instances from 0 to 0");
  EXPECT_EQ(Error([] {
              registerCommunicator({0, 1}, "more");
            }),
            "communicator 'more' needs instances from 0 to 0");

  finalizeBackend();
  EXPECT_FALSE(isBackendInitialized());
  EXPECT_EQ(Error(finalizeBackend), not_initialised);
  EXPECT_EQ(Error(initializeBackend),
            "register the communication backend once before initialising it");
}

}  // namespace
}  // namespace popdist
