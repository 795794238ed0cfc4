// Tools of the tests with random input.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace vpod::testing {

using Random = std::mt19937_64;

// The number in an environment variable, or `otherwise` if it is not set or not a number.
uint64_t NumberFrom(const char* variable, uint64_t otherwise);

// Changes a few bytes, inserts some, repeats some, or cuts off the end.
void MutateBytes(std::string& bytes, Random& random);

}  // namespace vpod::testing
