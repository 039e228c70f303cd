#include "harness/devices/guarded.hpp"

#include <cstring>
#include <vector>

#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("memory that is filled with poison holds it, whatever its elements are, and no number is poison") {
  std::vector<std::byte> memory(64);
  poison(memory);
  for (size_t i = 0; i < memory.size(); i += 4) {
    f16 half;
    float single;
    std::memcpy(&half, &memory[i + 2], 2);
    std::memcpy(&single, &memory[i], 4);
    CHECK((is_poison(half) && is_nan(half)));
    CHECK((is_poison(single) && is_nan(single)));
  }
  CHECK_FALSE((is_poison(f16{0x7e00}) || is_poison(f16{0}) || is_poison(0.0f)));
}

TEST_CASE("a guard that has lost any of its bytes, the first and the last too, says which") {
  std::vector<std::byte> guard(GUARD_BYTES, std::byte{GUARD_BYTE});
  CHECK_FALSE(overwritten(guard));
  for (const size_t at : {size_t{0}, size_t{1}, GUARD_BYTES / 2, GUARD_BYTES - 1}) {
    guard[at] = std::byte{0};
    CHECK(overwritten(guard) == at);
    guard[at] = std::byte{GUARD_BYTE};
  }
}
