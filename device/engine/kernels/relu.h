// RELU and RELU6 of an element, and their gradients; not-a-number stays. Operands are values: loads
// that depend on a condition are slow.
#pragma once

namespace vpod::engine {

inline float ReluOf(float x) { return x <= 0 ? 0.0f : x; }
inline float Relu6Of(float x) { return x <= 0 ? 0.0f : x > 6 ? 6.0f : x; }
// `y`: what the activation took or gave.
inline float ReluGradientOf(float y, float dy) { return y <= 0 ? 0.0f : dy; }
inline float Relu6GradientOf(float y, float dy) { return (y <= 0) | (y >= 6) ? 0.0f : dy; }

}  // namespace vpod::engine
