// What a timed group asks of a kernel, so that time without work is not timed: every launch of a group has inputs that
// the group has not seen before, and its own or an alternating output; the outputs are verified after the group.
//
// Inputs. Q, K and V go on behind the shape's heads with MORE_HEADS others, and each launch begins at heads of its own
// choice, one choice for each tensor: 9 * 9 * 9 problems lie in little more memory than one. A group uses each once, as
// far as they last, and before each group V changes its sign in half of the heads, drawn anew: an answer that is
// remembered, whether by its place or by the addresses of its inputs, is wrong.
// Outputs. Each holds, before the group, what nobody can tell from an answer or from another poison: half of them a NaN
// with a drawn payload, half of them numbers of an answer's size. As many launches as there are outputs to spare, drawn
// at random, have an output of their own; the others alternate between two, whose last writers are verified as well.
// So a kernel that leaves out a fraction f of its launches passes a group of many with probability of about
// (1 - f)^audits, and a group of no more launches than outputs never. With 16 audits: every second launch, 1.5e-5 in
// one group; one of 50, 0.0016 over 20 groups.
// What is not found: a kernel that reads all of its inputs to recognise them, and copies an answer when it does.
//
// Between the two events that take the time there is nothing but the launches: all of this happens before and after.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/measure/rounds.hpp"
#include "harness/problem/formula.hpp"

namespace ladder {

constexpr int MORE_HEADS = 8;
constexpr int MOST_OUTPUTS = 18;  // two that alternate, 16 audits

// How much of it fits. One output and no more heads is an ordinary problem.
struct Room {
  int more_heads = MORE_HEADS;
  int outputs = MOST_OUTPUTS;
};
// As much as fits into half of what the problem itself leaves free of `free_bytes`, and into 4 GiB.
Room room_for(const Shape& shape, uint64_t workspace_bytes, size_t free_bytes);

// The heads that more_heads of a Room stands for; nothing for none.
Inputs make_more_heads(InputKind kind, const Shape& shape, uint64_t seed, int more_heads);

// A view of the inputs whose answer is known, in some rows. V as it was made.
struct Question {
  View view;
  Reference reference;
};
// As many as there are outputs, all different where a few units are a problem by themselves.
std::vector<Question> make_questions(const Shape& shape, InputKind kind, const Inputs& inputs, const Inputs& more_heads,
                                     const Room& room, uint64_t seed);

// The memory that groups play on, of a GPU or (in tests) of the emulator: functions of GpuProblem.
struct GroupMemory {
  std::function<Status(int output, const Filling& filling)> fill_output;
  std::function<Status(std::string_view input, std::span<const uint8_t> flip)> negate;
  std::function<Result<Tensor>(std::string_view name, std::span<const OutputRow>)> read_rows;
  std::function<Status()> check_guards;
};

// The groups of all contestants of one shape, one group at a time.
class Groups {
 public:
  // `tolerances` are what each output may be off by, besides its rows' own tolerance, where it is held to a plain computation.
  // Whoever wants groups that a kernel cannot foresee takes the seed from std::random_device.
  Groups(GroupMemory memory, const Spec& shape, InputKind kind, const Room& room, std::vector<Question> questions,
         std::vector<double> tolerances, uint64_t seed);

  // Draws the launches of a group, and makes memory ready for it.
  Status prepare(int launches);
  // The launches that prepare drew; others, which nobody verifies, when it did not draw so many (a soak, a calibration).
  std::vector<Launch> launches(int count);
  // Success, or which launch of the group left what in the outputs of these names.
  Status verify(std::span<const std::string_view> outputs);

 private:
  struct Planned {
    Launch launch;
    int question = -1;  // of a launch that is verified
  };
  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  std::vector<Planned> draw_plan(int launches);
  bool is_odd(std::string_view output) const;

  GroupMemory memory_;
  const Formula& formula_;
  std::vector<TensorSpec> inputs_, outputs_;
  size_t odd_;  // among the inputs: the formula's odd one; their number, where it has none
  std::vector<View> views_;
  Room room_;
  std::vector<Question> questions_;
  std::vector<double> tolerances_;
  Filling plausible_;
  std::mt19937_64 random_;
  std::vector<uint8_t> negative_;  // of each unit of the formula's odd input
  std::vector<Planned> plan_;
  bool prepared_ = false;
};

// A contestant whose groups are those of `groups`, and which writes the outputs of these names.
Contestant make_contestant(std::string name, std::shared_ptr<Groups> groups, std::vector<std::string_view> outputs,
                           std::function<Result<double>(std::span<const Launch>)> time_ms);

}  // namespace ladder
