// Keys of the executable cache. A key ends in digits of each part of what an executable follows
// from, so that the names of files alone tell why a cache has no file for a program.
#pragma once

#include <array>
#include <string>

#include "absl/strings/string_view.h"

namespace vpod::compiler {

// The parts, as a message names them.
inline constexpr std::array<absl::string_view, 6> kKeyPartNames = {
    "the build of the compiler",
    "the number of replicas",
    "the number of IPUs of a replica",
    "an option of the compiler",
    "the program (optimizer, accumulation, iterations, outputs)",
    "the graph (operators, shapes, names, source lines)",
};
// The bytes of each part.
using KeyParts = std::array<std::string, kKeyPartNames.size()>;

// 64 hexadecimal digits: the first 40 of a SHA-256 of all parts, then the first four of one of each
// part.
std::string KeyOf(const KeyParts& parts);

// Which parts of a key differ from that of the file of `directory` that differs least, such as "the
// number of replicas differs from that of 0123….vipuexe, the nearest file". A file of the same
// graph is nearer than all others, and a newer one than an older one. Empty if no other file there
// has a name that is a key. Only names are read, at most 4096 of them.
std::string DifferenceFromNearest(const std::string& directory, absl::string_view key);

}  // namespace vpod::compiler
