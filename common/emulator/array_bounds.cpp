// What -fsanitize=bounds calls in an emulated kernel when an index is beyond the end of an array. A fragment's
// registers are such arrays: on the GPU the compiler gives the element next to it, or anything.
#include <fmt/format.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include "common/emulator/block.hpp"

namespace {

// As GCC and clang lay them out; their runtime library is not needed for this one check.
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];  // "'float [4]'", ended by a zero
};
struct OutOfBounds {
  const char* file;
  uint32_t line, column;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

}  // namespace

extern "C" void __ubsan_handle_out_of_bounds(OutOfBounds* at, uintptr_t index) {
  using namespace emulator;
  const std::string message = fmt::format("index {} of an array {}", static_cast<intptr_t>(index), at->array->name);
  if (current.block == nullptr) {  // not in a kernel
    std::fputs(fmt::format("{}:{}: {}\n", at->file, at->line, message).c_str(), stderr);
    std::abort();
  }
  const SourceLine where{at->file, static_cast<int>(at->line)};
  current.block->report_at(ReportKind::array_bounds, {where},
                           fmt::format("array out of bounds: {} at {} by {}, {}", message, to_string(where),
                                       Wording::thread_name(current.thread()), current.block->wording.block_name()));
  current.block->scheduler.stop();
}
