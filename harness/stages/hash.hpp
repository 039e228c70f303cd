// A hash that is a random stream, without the standard library.
#pragma once
#include <cstdint>

namespace ladder {

// splitmix64, a hash good enough to be a random stream when it is fed consecutive numbers.
inline uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace ladder
