#include "device/engine/executors.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace vpod::engine {
namespace {

TEST(ExecutorsTest, WhatWaitsHoldsUpNeitherKernelsNorTimers) {
  Executors executors(/*compute_threads=*/1);
  std::promise<void> kernel, control;
  std::promise<bool> came;
  executors.PostWaiting([&] {
    const auto patience = std::chrono::seconds(60);
    const bool both = kernel.get_future().wait_for(patience) == std::future_status::ready &&
                      control.get_future().wait_for(patience) == std::future_status::ready;
    came.set_value(both);
  });
  executors.PostCompute([&] { kernel.set_value(); });
  executors.PostControl([&] { control.set_value(); });
  EXPECT_TRUE(came.get_future().get());
}

TEST(ExecutorsTest, LongKernelsKeepNobodyElseFromWorking) {
  const auto patience = std::chrono::seconds(60);
  Executors executors(/*compute_threads=*/2);
  std::promise<void> other;
  const std::shared_future<void> came = other.get_future().share();
  std::promise<bool> kernels[2];
  for (std::promise<bool>& kernel : kernels) {
    executors.PostCompute([&, came] {
      const Executors::KernelScope scope;
      kernel.set_value(came.wait_for(patience) == std::future_status::ready);
    });
  }
  executors.PostCompute([&] { other.set_value(); });
  for (std::promise<bool>& kernel : kernels) EXPECT_TRUE(kernel.get_future().get());
  // The replacement ends.
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (executors.threads_now() > 2 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(executors.threads_now(), 2);
}

}  // namespace
}  // namespace vpod::engine
