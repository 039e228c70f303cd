// Texts taken apart.
#pragma once
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ladder {

// What stands between the separators; the whole text where there are none.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The number that all of the text is.
template <class T>
std::optional<T> number_in(std::string_view text) {
#ifndef __cpp_lib_to_chars  // libc++ before 20 reads whole numbers alone
  if constexpr (std::is_floating_point_v<T>) {
    const std::string copy(text);
    char* end = nullptr;
    const auto value = static_cast<T>(std::strtod(copy.c_str(), &end));
    const bool all = !copy.empty() && end == copy.c_str() + copy.size();
    return all && copy[0] != '+' && std::isspace(static_cast<unsigned char>(copy[0])) == 0 ? std::optional(value)
                                                                                           : std::nullopt;
  } else
#endif
  {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
  }
}

}  // namespace ladder
