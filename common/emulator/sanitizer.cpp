// What -fsanitize calls in an emulated kernel where C++ leaves open what happens, and a CPU does not do what a GPU does: an
// index beyond the end of an array (a fragment's registers are such arrays; a GPU has the element next to it, or
// anything), a shift by as many bits as there are or more (a GPU gives 0, or the sign; a CPU begins anew), a floating
// number that does not fit into a whole one (a GPU takes the nearest that fits, and 0 for NaN), and a whole one divided by
// zero (x86 ends the program, ARM has 0, a GPU some number).
#include <fmt/format.h>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include "common/emulator/block.hpp"

namespace {

// As GCC and clang lay them out; their runtime library is not needed for these few checks.
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];  // "'float [4]'", ended by a zero
};
struct Place {
  const char* file;
  uint32_t line, column;
};
struct Undefined {
  Place place;
  const TypeDescriptor* first;   // of the array, of what is shifted or divided, of the floating number
  const TypeDescriptor* second;  // of the index, of by how much, of the whole number
};

void end_launch(const Place& at, emulator::ReportKind kind, const char* title, const std::string& message) {
  using namespace emulator;
  if (current.block == nullptr) {  // not in a kernel
    std::fputs(fmt::format("{}:{}: {}\n", at.file, at.line, message).c_str(), stderr);
    std::abort();
  }
  const SourceLine where{at.file, static_cast<int>(at.line)};
  current.block->report_at(kind, {where},
                           fmt::format("{}: {} at {} by {}, {}", title, message, to_string(where),
                                       Wording::thread_name(current.thread()), current.block->wording.block_name()));
  current.block->scheduler.stop();
}

}  // namespace

extern "C" void __ubsan_handle_out_of_bounds(const Undefined* at, uintptr_t index) {
  end_launch(at->place, emulator::ReportKind::array_bounds, "array out of bounds",
             fmt::format("index {} of an array {}", static_cast<intptr_t>(index), at->first->name));
}

extern "C" void __ubsan_handle_shift_out_of_bounds(const Undefined* at, uintptr_t, uintptr_t by) {
  end_launch(at->place, emulator::ReportKind::undefined_arithmetic, "undefined arithmetic",
             fmt::format("a shift of {} by {} bits, where a GPU leaves nothing and a CPU something", at->first->name,
                         static_cast<int32_t>(by)));
}

extern "C" void __ubsan_handle_divrem_overflow(const Undefined* at, uintptr_t, uintptr_t) {
  end_launch(at->place, emulator::ReportKind::undefined_arithmetic, "undefined arithmetic",
             fmt::format("a division of {} by zero, of which a GPU makes some number", at->first->name));
}

extern "C" void __ubsan_handle_float_cast_overflow(const Undefined* at, uintptr_t bits) {
  const bool is_float = at->first->info == 32;  // or a double
  const double value = is_float ? double{std::bit_cast<float>(static_cast<uint32_t>(bits))}
                                : std::bit_cast<double>(static_cast<uint64_t>(bits));
  end_launch(at->place, emulator::ReportKind::undefined_arithmetic, "undefined arithmetic",
             fmt::format("{:.6g} made {}, which cannot hold it: a GPU takes the nearest that it can, a CPU another",
                         value, at->second->name));
}
