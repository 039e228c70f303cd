// The place in a kernel's source from which an instruction was issued. Every emulated instruction takes one as a
// trailing defaulted argument, so that counts and reports name the kernel's own line.
#pragma once
#include <cstdint>
#if !defined(__clang__) || __clang_major__ >= 16
#include <source_location>
#endif

namespace emulator {

struct CallSite {
  const char* file = "";
  uint32_t line = 0;
  uint32_t column = 0;  // tells apart two calls on one line

#if !defined(__clang__) || __clang_major__ >= 16
  static constexpr CallSite current(std::source_location here = std::source_location::current()) {
    return {here.file_name(), here.line(), here.column()};
  }
#else  // older clang has no std::source_location
  static constexpr CallSite current(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE(),
                                    uint32_t column = __builtin_COLUMN()) {
    return {file, line, column};
  }
#endif

  // Pointers to the file's name are compared, not its text: sound within one kernel, which is one translation unit.
  bool operator==(const CallSite&) const = default;
};

}  // namespace emulator
