#include "harness/devices/guarded.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/emulator/half.hpp"
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

TEST_CASE("poison fills the memory it is given, of whatever length, and not a byte more") {
  for (const size_t bytes : {0, 1, 2, 7, 64}) {
    std::vector<std::byte> memory(bytes + 8, std::byte{1});
    poison(std::span(memory).subspan(4, bytes));
    INFO(bytes << " bytes");
    CHECK(std::ranges::count(memory, std::byte{1}) == 8);  // no byte of POISON is 1
    CHECK(std::all_of(memory.begin(), memory.begin() + 4, [](std::byte byte) { return byte == std::byte{1}; }));
    CHECK(std::all_of(memory.end() - 4, memory.end(), [](std::byte byte) { return byte == std::byte{1}; }));
  }
}

TEST_CASE("of all f16, those are NaN that a conversion to f32 calls NaN, and a single one is poison") {
  int poisons = 0;
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const f16 value{static_cast<uint16_t>(bits)};
    if (is_nan(value) != std::isnan(emulator::half_to_float(value.bits))) FAIL_CHECK(bits);
    poisons += is_poison(value);
  }
  CHECK(poisons == 1);
}

TEST_CASE("guard zones are as long as their comment says, in whole pages") {
  CHECK(GUARD_BYTES >= 2048 * sizeof(f16));
  CHECK(GUARD_BYTES % 4096 == 0);
}
