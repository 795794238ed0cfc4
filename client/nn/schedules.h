// Learning rates as functions of the step, each equal to the scheduler of torch.optim.lr_scheduler
// that its comment names. A step is whatever the program counts: updates or epochs.
//
//   const nn::Schedule rate = nn::Warmup(nn::CosineAnnealing(0.1, 1000), 50);
//   session->SetLearningRate(static_cast<float>(rate(step)));
//
// Steps begin with 0. Lengths are above 0.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace vpod::nn {

using Schedule = std::function<double(int64_t step)>;

// StepLR: times `gamma` every `period` steps.
Schedule StepDecay(double rate, int64_t period, double gamma = 0.1);
// MultiStepLR: times `gamma` at each of the milestones, which ascend.
Schedule MultiStepDecay(double rate, std::vector<int64_t> milestones, double gamma = 0.1);
// ExponentialLR: times `gamma` at each step.
Schedule ExponentialDecay(double rate, double gamma);
// CosineAnnealingLR: half a wave down to `least` in `length` steps, and up again.
Schedule CosineAnnealing(double rate, int64_t length, double least = 0);
// CosineAnnealingWarmRestarts: half a wave down in `length` steps, then from the start with
// `factor` times the length.
Schedule CosineWarmRestarts(double rate, int64_t length, int64_t factor = 1, double least = 0);
// LinearLR: from rate × start to rate × end in `length` steps. A start below 1 is a linear warm-up.
Schedule Linear(double rate, int64_t length, double start = 1.0 / 3, double end = 1);
// PolynomialLR: down to 0 in `length` steps.
Schedule PolynomialDecay(double rate, int64_t length, double power = 1);
// ConstantLR: rate × factor for `length` steps, a constant warm-up.
Schedule ConstantThenFull(double rate, int64_t length, double factor = 1.0 / 3);
// SequentialLR of LinearLR and a schedule: `length` steps that rise from start × the first rate to
// the first rate, then the schedule from its beginning.
Schedule Warmup(Schedule schedule, int64_t length, double start = 1.0 / 3);

struct OneCycleOptions {
  double rise = 0.3;            // the share of the steps in which the rate rises
  double first_divisor = 25;    // of the largest rate, for the first
  double last_divisor = 10000;  // of the first rate, for the last
};
// OneCycleLR with cosines: up to the largest rate, then down, in `steps` in all.
Schedule OneCycle(double largest, int64_t steps, const OneCycleOptions& options = {});
// CyclicLR, triangular: up in `rise` steps, down in `fall` (0: as many), and again.
Schedule Triangular(double least, double largest, int64_t rise, int64_t fall = 0);

struct PlateauOptions {
  bool maximise = false;  // a larger value is a better one
  double factor = 0.1;
  int patience = 10;  // values in a row that are no better, before the rate falls
  double threshold = 1e-4;
  bool absolute = false;  // the threshold is a difference instead of a share of the best value
  int cooldown = 0;       // values after a fall that do not count
  double least = 0;
  double epsilon = 1e-8;  // the rate stays if it would fall by no more than this
};

// ReduceLROnPlateau: the rate falls when a value, such as the loss of an epoch, stops
// improving.
class ReduceOnPlateau {
 public:
  explicit ReduceOnPlateau(double rate, const PlateauOptions& options = {});

  double rate() const { return rate_; }
  // The rate after one more value.
  double Step(double value);

 private:
  bool IsBetter(double value) const;

  const PlateauOptions options_;
  double rate_;
  double best_;
  int bad_values_ = 0, cooling_ = 0;
};

}  // namespace vpod::nn
