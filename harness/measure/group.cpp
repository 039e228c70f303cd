#include "harness/measure/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace ladder {
namespace {

constexpr double MOST_BYTES = 4.0 * (1 << 30);  // that go into what only groups need
constexpr int HEADS_PER_QUESTION = 4, ROWS_PER_HEAD = 8;

// In one_hot, and only there, a query is made from a key of the same head.
bool q_follows_k(InputKind kind) {
  return kind == InputKind::one_hot;
}

// Numbers of the answers' size: uniform within middle +-spread, they have the middle and the deviation of `values`. What
// is not finite does not count. The spread is never 0.
struct Size {
  double middle = 0, spread = 0.01;
};
Size size_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return {};
  Size size;
  const auto count = static_cast<double>(values.size());
  size.middle = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - size.middle) * (value - size.middle);
  size.spread = std::max(std::sqrt(3 * squares / count), 0.01);
  return size;
}

// Off by how much. Where the formula makes NaN, so must the kernel; where infinity, that or NaN.
double error_of(double got, double expected) {
  if (std::isfinite(expected)) return std::abs(got - expected);
  return std::isnan(got) || got == expected ? 0 : std::numeric_limits<double>::infinity();
}

// A NaN that a kernel cannot know: its payload is drawn. Not infinity, whose payload is 0.
f16 drawn_nan(uint64_t bits) {
  return {static_cast<uint16_t>(0x7c00 | (bits & 0x8000) | std::max<uint64_t>(1, bits & 0x3ff))};
}

std::vector<View> all_views(int more_heads, InputKind kind) {
  std::vector<View> views;
  for (int k = 0; k <= more_heads; ++k) {
    for (int v = 0; v <= more_heads; ++v) {
      for (int q = 0; q <= more_heads; ++q) {
        if (q == k || !q_follows_k(kind)) views.push_back({q, k, v});
      }
    }
  }
  return views;
}

}  // namespace

Room room_for(const Shape& shape, bool with_scores, size_t free_bytes) {
  const auto least = double(gpu_bytes_needed(shape, with_scores));
  const double spare = std::min(MOST_BYTES, (double(free_bytes) - least) / 2);
  const auto fits = [&](const Room& room) {
    return double(gpu_bytes_needed(shape, with_scores, room.more_heads, room.outputs)) - least <= spare;
  };
  Room room;
  while (room.outputs > 1 && !fits(room)) --room.outputs;
  while (room.more_heads > 0 && !fits(room)) --room.more_heads;
  return room;
}

Inputs make_more_heads(InputKind kind, const Shape& shape, uint64_t seed, int more_heads) {
  if (more_heads == 0) return {};
  const Shape more{.batch = 1, .heads = more_heads, .n = shape.n, .d = shape.d, .causal = shape.causal};
  return make_inputs(kind, more, ~seed);
}

std::vector<Question> make_questions(const Shape& shape, InputKind kind, const Inputs& inputs, const Inputs& more_heads,
                                     const Room& room, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random); };
  const int64_t batch_heads = shape.batch_heads(), head_elements = int64_t{shape.n} * shape.d;
  const int heads = static_cast<int>(std::min<int64_t>(HEADS_PER_QUESTION, batch_heads));
  // A small problem of the few heads that are looked at.
  const Shape few{.batch = 1, .heads = heads, .n = shape.n, .d = shape.d, .causal = shape.causal};
  std::vector<View> views = all_views(room.more_heads, kind);
  std::shuffle(views.begin(), views.end(), random);
  std::vector<Question> questions;
  for (int i = 0; i < room.outputs; ++i) {
    Question question{views[i % views.size()], {}};  // all the same when there are no more heads
    std::set<int64_t> chosen{0, batch_heads - 1};    // the first and the last head, and others
    while (std::ssize(chosen) < heads) chosen.insert(below(batch_heads));
    Inputs taken;
    const auto take = [&](std::vector<f16> Inputs::*tensor, int64_t head) {
      const bool more = head >= batch_heads;
      const std::vector<f16>& from = (more ? more_heads : inputs).*tensor;
      const auto first = from.begin() + (more ? head - batch_heads : head) * head_elements;
      (taken.*tensor).insert((taken.*tensor).end(), first, first + head_elements);
    };
    std::set<int64_t> rows;
    std::vector<int64_t> place;  // of a few's head in the output
    for (const int64_t head : chosen) {
      take(&Inputs::Q, head + question.view.q);
      take(&Inputs::K, head + question.view.k);
      take(&Inputs::V, head + question.view.v);
      for (int row = 0; row < ROWS_PER_HEAD; ++row) rows.insert(std::ssize(place) * shape.n + below(shape.n));
      place.push_back(head);
    }
    question.reference = make_reference(few, taken, {rows.begin(), rows.end()}, 1, true);
    for (int64_t& row : question.reference.rows) row = place[row / shape.n] * shape.n + row % shape.n;
    questions.push_back(std::move(question));
  }
  return questions;
}

Groups::Groups(GroupMemory memory, const Shape& shape, InputKind kind, const Room& room,
               std::vector<Question> questions, double tolerance, uint64_t seed)
    : memory_(std::move(memory)),
      shape_(shape),
      views_(all_views(room.more_heads, kind)),
      room_(room),
      questions_(std::move(questions)),
      tolerance_(tolerance),
      random_(seed),
      negative_(shape.batch_heads() + room.more_heads) {
  // Poison of an answer's size: uniform numbers with the answers' middle and deviation.
  std::vector<double> O, LSE;
  for (const Question& question : questions_) {
    O.insert(O.end(), question.reference.output.begin(), question.reference.output.end());
    LSE.insert(LSE.end(), question.reference.lse.begin(), question.reference.lse.end());
  }
  const Size size = size_of(std::move(O)), lse = size_of(std::move(LSE));
  plausible_.O_spread = static_cast<float>(size.spread);  // around 0: V has changed its sign in half of the heads
  plausible_.LSE_middle = static_cast<float>(lse.middle);
  plausible_.LSE_spread = static_cast<float>(lse.spread);
}

std::vector<Groups::Planned> Groups::draw_plan(int launches) {
  std::vector<int> question(questions_.size());
  std::iota(question.begin(), question.end(), 0);
  std::shuffle(question.begin(), question.end(), random_);
  // Who has an output of its own.
  const int own = launches <= room_.outputs ? launches : std::max(0, room_.outputs - 2);
  const int shared = launches <= room_.outputs ? 0 : std::min(2, room_.outputs);
  std::vector<int> order(launches);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  std::vector<Planned> plan(launches);
  const auto verified = [&](int launch, int output) {
    plan[launch] = {{questions_[question[output]].view, output}, question[output]};
  };
  for (int i = 0; i < own; ++i) verified(order[i], shared + i);
  std::vector<int> others(order.begin() + own, order.end());
  std::sort(others.begin(), others.end());
  for (const int launch : others) plan[launch].launch.output = below(shared);
  // The last one that writes a shared output is verified.
  for (int output = 0; output < shared; ++output) {
    const auto writes = [&](int launch) { return plan[launch].launch.output == output; };
    const auto last = std::find_if(others.rbegin(), others.rend(), writes);
    if (last != others.rend()) verified(*last, output);
  }
  // The views of the others: each once, then again from the start.
  std::vector<View> views = views_;
  std::erase_if(views, [&](const View& view) {
    return std::ranges::any_of(questions_, [&](const Question& each) { return each.view == view; });
  });
  if (views.empty()) views = views_;
  std::shuffle(views.begin(), views.end(), random_);
  size_t next = 0;
  for (const int launch : others) {
    if (plan[launch].question < 0) plan[launch].launch.view = views[next++ % views.size()];
  }
  return plan;
}

Status Groups::prepare(int launches) {
  std::vector<uint8_t> flip(negative_.size());
  for (size_t head = 0; head < flip.size(); ++head) {
    flip[head] = random_() % 2;
    negative_[head] ^= flip[head];
  }
  if (auto status = memory_.negate_v(flip); !status) return status;
  plan_ = draw_plan(launches);
  std::set<int> outputs;
  for (const Planned& planned : plan_) outputs.insert(planned.launch.output);
  for (const int output : outputs) {
    const uint64_t bits = random_();
    Filling filling = random_() % 2 ? plausible_ : Filling{};
    filling.seed = bits;
    filling.nan = drawn_nan(bits);
    if (auto status = memory_.fill_output(output, filling); !status) return status;
  }
  prepared_ = true;
  return {};
}

std::vector<Launch> Groups::launches(int count) {
  const bool planned = std::exchange(prepared_, false) && std::ssize(plan_) == count;
  std::vector<Launch> launches;
  for (const Planned& each : planned ? plan_ : draw_plan(count)) launches.push_back(each.launch);
  return launches;
}

Status Groups::verify(bool lse) {
  std::vector<OutputRow> rows;
  for (const Planned& planned : plan_) {
    if (planned.question < 0) continue;
    for (const int64_t row : questions_[planned.question].reference.rows) rows.push_back({planned.launch.output, row});
  }
  const auto output = memory_.read_output_rows(rows);
  if (!output) return tl::make_unexpected(output.error());
  const auto sums = lse ? memory_.read_lse_rows(rows) : Result<std::vector<float>>{};
  if (!sums) return tl::make_unexpected(sums.error());
  size_t next = 0;
  for (int launch = 0; launch < std::ssize(plan_); ++launch) {
    const Planned& planned = plan_[launch];
    if (planned.question < 0) continue;
    const Reference& reference = questions_[planned.question].reference;
    for (size_t i = 0; i < reference.rows.size(); ++i, ++next) {
      const int64_t row = reference.rows[i], head = row / shape_.n;
      const double sign = negative_[planned.launch.view.v + head] ? -1 : 1;
      const auto wrong = [&](const std::string& what) {
        return failure(
            ExitCode::check_failed,
            fmt::format("wrong in a timed group: launch {} of {}, batch {}, head {}, query {}: {}", launch + 1,
                        plan_.size(), head / shape_.heads, head % shape_.heads, row % shape_.n, what));
      };
      for (int column = 0; column < shape_.d; ++column) {
        const double got = to_float((*output)[next * shape_.d + column]), expected = sign * reference.row(i)[column];
        const double error = error_of(got, expected);
        // A row that meets NaN or infinity has no term; its finite columns are held to the plain tolerance.
        const double term = reference.score_term[i], tolerance = tolerance_ + (std::isfinite(term) ? term : 0);
        if (error <= tolerance) continue;  // false for NaN
        return wrong(fmt::format("error {:.1e} in column {}; {:.1e} is allowed", error, column, tolerance));
      }
      if (!lse) continue;
      const double error = error_of((*sums)[next], reference.lse[i]);
      if (error == 0 || error <= reference.lse_tolerance[i]) continue;
      return wrong(fmt::format("log-sum-exp is off by {:.1e}; {:.1e} is allowed", error, reference.lse_tolerance[i]));
    }
  }
  return memory_.check_guards();
}

Contestant make_contestant(std::string name, std::shared_ptr<Groups> groups, bool lse,
                           std::function<Result<double>(std::span<const Launch>)> time_ms) {
  return {.name = std::move(name),
          .time_ms =
              [groups, time_ms = std::move(time_ms)](int launches) {
                const std::vector<Launch> drawn = groups->launches(launches);
                return time_ms(drawn);
              },
          .before = [groups](int launches) { return groups->prepare(launches); },
          .after = [groups, lse] { return groups->verify(lse); }};
}

}  // namespace ladder
