// The random numbers that inputs are made of.
#pragma once
#include <cstdint>
#include <span>

namespace ladder {

// splitmix64, a hash good enough to be a random stream when it is fed consecutive numbers.
inline uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Independent N(0, 1) values, in pairs that depend on `stream` and their number alone, from pair `first` on: any thread can
// make any of them. They are computed as doubles, so that the last bits, in which mathematical libraries differ, are far below
// what an f16 keeps. An even number of values.
void draw_normals(uint64_t stream, uint64_t first, std::span<float> values);

}  // namespace ladder
