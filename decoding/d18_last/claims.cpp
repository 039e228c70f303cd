#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

// What two launches in the same memory leave, one behind the other. Before the first one the workspace is this byte over
// and over; two blocks run at a time.
struct Left {
  std::vector<std::vector<std::byte>> O;
  std::vector<std::byte> workspace;
  size_t reports = 0;
  uint64_t blocks = 0;
};
Left left_by_two(const Spec& spec, std::byte before) {
  const Problem& question = problem(spec);
  emulator::Device device({.threads = 2, .multiprocessors = 132, .cluster_order = 5});
  Left left;
  left.workspace.assign(rung().workspace_at(spec), before);
  device.register_buffer(left.workspace.data(), left.workspace.size(), "workspace", emulator::Access::read_write);
  Arguments arguments{.spec = spec};
  arguments.workspace = left.workspace.data();
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(8);
  const auto add = [&](const TensorSpec& of, std::span<const std::byte> holds, emulator::Access access) {
    std::vector<std::byte>& own = memory.emplace_back(of.memory_bytes());
    std::ranges::copy(holds, own.begin());
    device.register_buffer(own.data(), own.size(), std::string(of.name), access);
    arguments.add({of.name.data(), own.data(), {of.strides[0], of.strides[1], of.strides[2]}});
  };
  const auto inputs = question.formula().inputs(spec);
  for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], question.inputs.at(i).bytes(), emulator::Access::read_only);
  const size_t O = memory.size();
  for (const TensorSpec& of : question.formula().outputs(spec)) add(of, {}, emulator::Access::read_write);
  for (int launch = 0; launch < 2; ++launch) {
    std::ranges::fill(memory[O], std::byte{0xff});
    rung().variants.front().on_emulator.with(arguments)(device);
    left.O.push_back(memory[O]);
  }
  left.reports = device.reports().size();
  left.blocks = device.counters().blocks;
  return left;
}

}  // namespace

CLAIM("a launch finds its count as the one before has left it, whatever the memory held at first") {
  const Spec spec = one_query(1, 1024);  // eight shares of one tile of rows
  const uint64_t parts = 8 * 4 * 130 * 4;
  REQUIRE(rung().workspace_at(spec) == parts + 4);
  const Left zeros = left_by_two(spec, std::byte{0});
  CHECK(zeros.O[0] == zeros.O[1]);
  for (const int byte : {0, 1, 0x3f, 0x7f, 0xff}) {
    const Left left = left_by_two(spec, std::byte(byte));
    INFO(byte);
    CHECK(left.reports == 0);
    CHECK(left.O[0] == zeros.O[0]);
    CHECK(left.O[1] == zeros.O[0]);
    for (size_t i = parts; i < left.workspace.size(); ++i) CHECK(left.workspace[i] == std::byte{0});
  }
}

CLAIM("128 parts are joined by the last block that leaves one, 256 by a second launch, whose blocks have a row each") {
  Spec spec = one_query(1, 1024);
  spec.heads = 16;
  CHECK(left_by_two(spec, std::byte{0}).blocks == 2 * 8);
  spec.n = 2;
  CHECK(left_by_two(spec, std::byte{0}).blocks == 2 * (8 + 32));
}
