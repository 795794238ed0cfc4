#include "client/nn/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace vpod::nn {
namespace {

// How much of a length has passed, 1 at most.
double Share(int64_t step, int64_t length) {
  return static_cast<double>(std::min(step, length)) / static_cast<double>(length);
}

// From `start` to `end` along half a wave.
double Cosine(double start, double end, double share) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

}  // namespace

Schedule StepDecay(double rate, int64_t period, double gamma) {
  return [=](int64_t step) {
    return rate *
           std::pow(gamma, std::floor(static_cast<double>(step) / static_cast<double>(period)));
  };
}

Schedule MultiStepDecay(double rate, std::vector<int64_t> milestones, double gamma) {
  return [=, milestones = std::move(milestones)](int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step);
    return rate * std::pow(gamma, static_cast<double>(passed - milestones.begin()));
  };
}

Schedule ExponentialDecay(double rate, double gamma) { return StepDecay(rate, 1, gamma); }

Schedule CosineAnnealing(double rate, int64_t length, double least) {
  return [=](int64_t step) {
    return Cosine(rate, least, static_cast<double>(step) / static_cast<double>(length));
  };
}

Schedule CosineWarmRestarts(double rate, int64_t length, int64_t factor, double least) {
  return [=](int64_t step) {
    int64_t current = std::max<int64_t>(1, length);
    while (step >= current) {
      step -= current;
      current *= std::max<int64_t>(1, factor);
    }
    return Cosine(rate, least, Share(step, current));
  };
}

Schedule Linear(double rate, int64_t length, double start, double end) {
  return [=](int64_t step) { return rate * (start + (end - start) * Share(step, length)); };
}

Schedule PolynomialDecay(double rate, int64_t length, double power) {
  return [=](int64_t step) { return rate * std::pow(1 - Share(step, length), power); };
}

Schedule ConstantThenFull(double rate, int64_t length, double factor) {
  return [=](int64_t step) { return step < length ? rate * factor : rate; };
}

Schedule Warmup(Schedule schedule, int64_t length, double start) {
  const Schedule rise = Linear(schedule(0), length, start);
  return [=, schedule = std::move(schedule)](int64_t step) {
    return step < length ? rise(step) : schedule(step - length);
  };
}

Schedule OneCycle(double largest, int64_t steps, const OneCycleOptions& options) {
  const double first = largest / options.first_divisor, last = first / options.last_divisor;
  // Steps at which the rise and the fall end; they count from 0.
  const double top = options.rise * static_cast<double>(steps) - 1,
               bottom = static_cast<double>(steps) - 1;
  return [=](int64_t step) {
    const double at = std::min(static_cast<double>(step), bottom);
    if (at < top) return Cosine(first, largest, at / top);
    if (at == top) return largest;
    return Cosine(largest, last, (at - top) / (bottom - top));
  };
}

Schedule Triangular(double least, double largest, int64_t rise, int64_t fall) {
  const double up = static_cast<double>(rise), down = fall > 0 ? static_cast<double>(fall) : up;
  return [=](int64_t step) {
    const double at = std::fmod(static_cast<double>(step), up + down);
    const double height = at <= up ? at / up : (up + down - at) / down;
    return least + (largest - least) * height;
  };
}

ReduceOnPlateau::ReduceOnPlateau(double rate, const PlateauOptions& options)
    : options_(options),
      rate_(rate),
      best_(std::numeric_limits<double>::infinity() * (options.maximise ? -1 : 1)) {}

bool ReduceOnPlateau::IsBetter(double value) const {
  const double sign = options_.maximise ? 1 : -1;
  const double limit = options_.absolute ? best_ + sign * options_.threshold
                                         : best_ * (1 + sign * options_.threshold);
  return options_.maximise ? value > limit : value < limit;
}

double ReduceOnPlateau::Step(double value) {
  if (IsBetter(value)) {
    best_ = value;
    bad_values_ = 0;
  } else {
    ++bad_values_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_values_ = 0;
  }
  if (bad_values_ > options_.patience) {
    const double lower = std::max(rate_ * options_.factor, options_.least);
    if (rate_ - lower > options_.epsilon) rate_ = lower;
    cooling_ = options_.cooldown;
    bad_values_ = 0;
  }
  return rate_;
}

}  // namespace vpod::nn
