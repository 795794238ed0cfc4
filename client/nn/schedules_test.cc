// The numbers are PyTorch 1.13's: the rates of an optimiser that begins with 0.1,
//   optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
// before each step of the scheduler that stands beside them.
#include "client/nn/schedules.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vpod::nn {
namespace {

void ExpectRates(const Schedule& schedule, const std::vector<double>& rates) {
  for (size_t step = 0; step < rates.size(); ++step)
    EXPECT_NEAR(schedule(static_cast<int64_t>(step)), rates[step], 1e-11) << "step " << step;
}

TEST(SchedulesTest, DecayInSteps) {
  // StepLR(optimizer, 3, 0.5), MultiStepLR(optimizer, [2, 5]), ExponentialLR(optimizer, 0.9)
  ExpectRates(StepDecay(0.1, 3, 0.5), {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025});
  ExpectRates(MultiStepDecay(0.1, {2, 5}), {0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001});
  ExpectRates(ExponentialDecay(0.1, 0.9), {0.1, 0.09, 0.081, 0.0729, 0.06561});
}

TEST(SchedulesTest, Cosines) {
  // CosineAnnealingLR(optimizer, 4, 0.01)
  ExpectRates(CosineAnnealing(0.1, 4, 0.01),
              {0.1, 0.0868198051534, 0.055, 0.0231801948466, 0.01, 0.0231801948466, 0.055});
  // CosineAnnealingWarmRestarts(optimizer, 2, 2, 0.01)
  ExpectRates(CosineWarmRestarts(0.1, 2, 2, 0.01),
              {0.1, 0.055, 0.1, 0.0868198051534, 0.055, 0.0231801948466, 0.1, 0.096574578963,
               0.0868198051534, 0.0722207544564});
}

TEST(SchedulesTest, LinesAndPowers) {
  // LinearLR(optimizer, 1 / 3, 1, 4), LinearLR(optimizer, 1, 0.25, 3)
  ExpectRates(Linear(0.1, 4), {0.1 / 3, 0.05, 0.2 / 3, 0.25 / 3, 0.1, 0.1});
  ExpectRates(Linear(0.1, 3, 1, 0.25), {0.1, 0.075, 0.05, 0.025, 0.025});
  // PolynomialLR(optimizer, 4, 2), ConstantLR(optimizer, 0.25, 2)
  ExpectRates(PolynomialDecay(0.1, 4, 2), {0.1, 0.05625, 0.025, 0.00625, 0, 0});
  ExpectRates(ConstantThenFull(0.1, 2, 0.25), {0.025, 0.025, 0.1, 0.1});
}

TEST(SchedulesTest, WarmupThenAnotherSchedule) {
  // SequentialLR(optimizer, [LinearLR(optimizer, 0.25, 1, 3), CosineAnnealingLR(optimizer, 4)],
  // [3])
  ExpectRates(Warmup(CosineAnnealing(0.1, 4), 3, 0.25),
              {0.025, 0.05, 0.075, 0.1, 0.0853553390593, 0.05, 0.0146446609407});
}

TEST(SchedulesTest, Cycles) {
  // OneCycleLR(optimizer, 1, total_steps=10), which stays where it ends
  ExpectRates(OneCycle(1, 10), {0.04, 0.52, 1, 0.950484632013, 0.81174565395, 0.611262021936,
                                0.388741978064, 0.18825834605, 0.0495193679865, 4e-06, 4e-06});
  // CyclicLR(optimizer, 0.1, 0.5, 4, 2)
  ExpectRates(Triangular(0.1, 0.5, 4, 2), {0.1, 0.2, 0.3, 0.4, 0.5, 0.3, 0.1, 0.2, 0.3, 0.4});
}

void ExpectRatesAfter(const PlateauOptions& options, const std::vector<double>& rates) {
  ReduceOnPlateau schedule(0.1, options);
  EXPECT_EQ(schedule.rate(), 0.1);
  const double values[] = {1, 0.9, 0.9, 0.95, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8};
  for (size_t i = 0; i < rates.size(); ++i)
    EXPECT_NEAR(schedule.Step(values[i]), rates[i], 1e-12) << "value " << i;
}

TEST(SchedulesTest, ReduceOnPlateau) {
  // ReduceLROnPlateau(optimizer, factor=0.5, patience=1, cooldown=2), the rates after each value
  ExpectRatesAfter({.factor = 0.5, .patience = 1, .cooldown = 2},
                   {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.0125});
  // ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=2, threshold=0.05,
  //                   threshold_mode="abs", min_lr=0.03)
  ExpectRatesAfter({.maximise = true,
                    .factor = 0.5,
                    .patience = 2,
                    .threshold = 0.05,
                    .absolute = true,
                    .least = 0.03},
                   {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03});
}

// Lengths of 0 are mistakes of the caller, and nothing worse.
TEST(SchedulesTest, NoLengthEndsTheProgram) {
  StepDecay(0.1, 0)(3);
  CosineAnnealing(0.1, 0)(3);
  EXPECT_TRUE(std::isfinite(CosineWarmRestarts(0.1, 0)(3)));
  EXPECT_TRUE(std::isfinite(CosineWarmRestarts(0.1, 2, 0)(30)));
  Linear(0.1, 0)(3);
  OneCycle(0.1, 0)(3);
  Triangular(0.1, 1, 0)(3);
}

}  // namespace
}  // namespace vpod::nn
