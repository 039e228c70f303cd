#include "harness/devices/guarded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/problem/element.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("a guard that has lost any of its bytes, the first and the last too, says which") {
  std::vector<std::byte> guard(GUARD_BYTES, std::byte{GUARD_BYTE});
  std::vector<std::string> messages;
  for (const bool is_before : {false, true}) report_overwritten(guard, is_before, "O", messages);
  CHECK(messages.empty());
  for (const size_t at : {size_t{0}, size_t{1}, GUARD_BYTES / 2, GUARD_BYTES - 1}) {
    guard[at] = std::byte{0};
    report_overwritten(guard, false, "O", messages);
    CHECK(messages.back() == fmt::format("{} bytes past the end of O", at));
    report_overwritten(guard, true, "O", messages);
    CHECK(messages.back() == fmt::format("{} bytes before the start of O", GUARD_BYTES - at));
    guard[at] = std::byte{GUARD_BYTE};
  }
}

TEST_CASE("poison fills the memory it is given, of whatever length, and not a byte more") {
  for (const size_t bytes : {0, 1, 2, 7, 64}) {
    std::vector<std::byte> memory(bytes + 8, std::byte{1});
    poison(Element::f16, std::span(memory).subspan(4, bytes));
    INFO(bytes << " bytes");
    CHECK(std::ranges::count(memory, std::byte{1}) == 8);  // no byte of POISON is 1
    CHECK(std::all_of(memory.begin(), memory.begin() + 4, [](std::byte byte) { return byte == std::byte{1}; }));
    CHECK(std::all_of(memory.end() - 4, memory.end(), [](std::byte byte) { return byte == std::byte{1}; }));
  }
}

TEST_CASE("poison is of an f16, of two side by side as an f32, and NaN as either") {
  for (const Element element : {Element::f16, Element::f32}) {
    std::vector<std::byte> memory(64);
    poison(element, memory);
    for (size_t i = 0; i < memory.size(); i += 4) {
      CHECK((is_poison(Element::f16, &memory[i + 2]) && std::isnan(info(Element::f16).to(&memory[i + 2]))));
      CHECK((is_poison(Element::f32, &memory[i]) && std::isnan(info(Element::f32).to(&memory[i]))));
    }
  }
}

TEST_CASE("guard zones are as long as their comment says, in whole pages") {
  CHECK(GUARD_BYTES >= 2048 * sizeof(f16));
  CHECK(GUARD_BYTES % 4096 == 0);
}
