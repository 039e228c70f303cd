// "Did you mean": the known word that is fewest edits away from what was typed; and lists that are no wall.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace ladder {

// The nearest of `known`, or "" if even that is more than half of the typed word away.
std::string nearest(std::string_view typed, std::span<const std::string> known);
// " Did you mean causal?", or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

// The first three, and how many others there are: "02_swizzle, 03_kvpipe, 04_vpair and 7 others".
std::string few(std::span<const std::string_view> names);

}  // namespace ladder
