// Guard zones around a buffer, and what memory holds before a kernel runs.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/attention.hpp"

namespace ladder {

constexpr size_t GUARD_BYTES = 4096;  // before and behind: any access up to 2048 f16 outside meets it
constexpr uint8_t GUARD_BYTE = 0xa5;

// What an output holds until a kernel writes it: a NaN that no arithmetic produces, so that "never written" and "wrote
// NaN" can be told apart. As f32 (two of them side by side) it is a NaN as well.
constexpr f16 POISON{0x7fa5};

// Adds where a zone before or behind a buffer has lost the pattern, if it has.
inline void report_overwritten(std::span<const std::byte> guard, bool is_before, const std::string& name,
                               std::vector<std::string>& messages) {
  const auto lost = std::ranges::find_if(guard, [](std::byte each) { return each != std::byte{GUARD_BYTE}; });
  const auto at = static_cast<size_t>(lost - guard.begin());
  if (at == guard.size()) return;
  messages.push_back(is_before ? std::to_string(GUARD_BYTES - at) + " bytes before the start of " + name
                               : std::to_string(at) + " bytes past the end of " + name);
}

}  // namespace ladder
