// The types of a tensor's numbers, as the host, the emulator and a stage.cu call them.
#pragma once
#include <cstdint>
#include "common/attention.hpp"

namespace ladder {

enum class Element : uint8_t { f16, bf16, f32, e4m3, e5m2, s8, i32, s4 };

// The same of a kernel's type.
template <class T>
constexpr Element element_of = Element::f16;
template <>
inline constexpr Element element_of<bf16> = Element::bf16;
template <>
inline constexpr Element element_of<e4m3> = Element::e4m3;

}  // namespace ladder
