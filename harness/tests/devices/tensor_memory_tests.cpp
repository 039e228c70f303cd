// Memory of an emulated launch: where it lies, who may touch it, and what becomes of it.
#include "harness/devices/tensor_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <new>

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

constexpr size_t PAGE = 4096;

std::byte* page_of(std::byte* address) {
  return address - reinterpret_cast<uintptr_t>(address) % PAGE;
}

// The kernel says, without a fault.
bool is_mapped(std::byte* address) {
  return msync(page_of(address), 1, MS_ASYNC) == 0;
}
bool is_readable(const std::byte* address) {
  int ends[2];
  if (pipe(ends) != 0) throw std::bad_alloc();
  const bool read = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return read;
}

// Of this process, in bytes, touched or not.
size_t address_space() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * PAGE;
}

std::vector<std::string> messages_of(const TensorBytes& memory) {
  std::vector<std::string> messages;
  memory.check_guards("K", messages);
  return messages;
}

// Around the ends of pages and of what a GPU's allocator rounds to.
constexpr size_t SIZES[] = {2, 254, 256, 258, 512, 3840, 4094, 4096, 4098, 8192, 12032, 65536};

}  // namespace

TEST_CASE(
    "a tensor begins where a GPU's would, ends as near to the end of a page as that allows, and has guards of its "
    "own") {
  for (const size_t bytes : SIZES) {
    INFO(bytes << " bytes");
    const TensorBytes memory(bytes);
    CHECK(memory.bytes() == bytes);
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    CHECK(begin % 32 == 16);
    CHECK(reinterpret_cast<uintptr_t>(memory.for_kernels()) % 32 == 16);
    std::fill_n(memory.data(), bytes, std::byte{0});  // the whole of the payload, and nothing else
    const auto is_guard = [](std::byte byte) { return byte == std::byte{GUARD_BYTE}; };
    CHECK(std::all_of(memory.data() - GUARD_BYTES, memory.data(), is_guard));
    CHECK(std::all_of(memory.data() + bytes, memory.data() + bytes + GUARD_BYTES, is_guard));
    CHECK(messages_of(memory).empty());
  }
}

TEST_CASE("a write to any end of a guard is said with its distance from the tensor, and to both guards twice") {
  for (const size_t bytes : SIZES) {
    INFO(bytes << " bytes");
    const TensorBytes memory(bytes);
    std::byte *const begin = memory.data(), *const end = memory.data() + bytes;
    for (const size_t distance : {size_t{1}, size_t{2}, GUARD_BYTES}) {
      const std::string number = std::to_string(distance);
      begin[-static_cast<std::ptrdiff_t>(distance)] = std::byte{0};
      CHECK(messages_of(memory) == std::vector{number + " bytes before the start of K"});
      end[distance - 1] = std::byte{0};
      CHECK(messages_of(memory) == std::vector{number + " bytes before the start of K",
                                               std::to_string(distance - 1) + " bytes past the end of K"});
      begin[-static_cast<std::ptrdiff_t>(distance)] = std::byte{GUARD_BYTE};
      CHECK(messages_of(memory) == std::vector{std::to_string(distance - 1) + " bytes past the end of K"});
      end[distance - 1] = std::byte{GUARD_BYTE};
    }
  }
}

TEST_CASE(
    "no address that a kernel gets can be read, nor those around it, and none is mapped when the tensor is gone") {
  for (const size_t bytes : SIZES) {
    INFO(bytes << " bytes");
    std::vector<std::byte*> real, barred;
    size_t readable = 0, barred_readable = 0;
    {
      const TensorBytes memory(bytes);
      for (const auto& [pages, begin] : {std::pair{&real, memory.data()}, {&barred, memory.for_kernels()}}) {
        for (std::byte* page = page_of(begin - GUARD_BYTES); page < begin + bytes + GUARD_BYTES; page += PAGE) {
          pages->push_back(page);
        }
      }
      for (const std::byte* page : real) readable += is_readable(page);
      for (const std::byte* page : barred) barred_readable += is_readable(page);
    }
    const auto left = std::ranges::count_if(real, is_mapped), barred_left = std::ranges::count_if(barred, is_mapped);
    CHECK(readable == real.size());
    CHECK(barred_readable == 0);
    CHECK((left == 0 && barred_left == 0));
  }
}

TEST_CASE("memory that is not to be had is an exception, and what was had of it already is given back") {
  CHECK_THROWS_AS(TensorBytes(size_t{1} << 60), std::bad_alloc);

  constexpr size_t BYTES = size_t{1} << 30;  // none of it is touched
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const size_t used = address_space();
  const rlimit room{.rlim_cur = used + BYTES + BYTES / 2,
                    .rlim_max = before.rlim_max};  // for one mapping and not for two
  REQUIRE(setrlimit(RLIMIT_AS, &room) == 0);
  bool thrown = false;
  try {
    const TensorBytes memory(BYTES);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  setrlimit(RLIMIT_AS, &before);
  CHECK(thrown);
  CHECK(address_space() < used + BYTES / 2);
}
