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

}  // namespace
}  // namespace vpod::engine
