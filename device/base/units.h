// Strong types for quantities that must not be mixed up.
#pragma once

#include <compare>
#include <cstdint>

namespace vpod::base {

// An unsigned quantity of one kind: adds and compares with its own kind only.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value_ + b.value_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value_ - b.value_);
  }
  friend constexpr Quantity operator*(Quantity a, uint64_t n) { return Quantity(a.value_ * n); }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  uint64_t value_ = 0;
};

// Virtual time: cycles of the tile clock. Never converts to or from wall time except in
// device/ipu/sensors.
using Cycles = Quantity<struct CyclesTag>;
using Bytes = Quantity<struct BytesTag>;

}  // namespace vpod::base
