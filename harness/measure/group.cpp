#include "harness/measure/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "harness/problem/formula.hpp"

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

// The formula's inputs in their order, each from a head of its own on.
std::vector<View> all_views(const Shape& shape, int more_heads, InputKind kind) {
  const std::vector<TensorSpec> inputs = formula_of(shape).inputs(shape);
  const auto place = [&](std::string_view name) {
    return std::ranges::find(inputs, name, &TensorSpec::name) - inputs.begin();
  };
  std::vector<View> views{{}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<View> longer;
    for (const View& view : views) {
      for (int head = 0; head <= more_heads; ++head) {
        longer.push_back(view);
        longer.back().push_back(head);
      }
    }
    views = std::move(longer);
  }
  if (q_follows_k(kind)) {
    std::erase_if(views, [q = place("Q"), k = place("K")](const View& view) { return view[q] != view[k]; });
  }
  return views;
}

}  // namespace

Room room_for(const Shape& shape, uint64_t workspace_bytes, size_t free_bytes) {
  const auto least = double(gpu_bytes_needed(shape, workspace_bytes));
  const double spare = std::min(MOST_BYTES, (double(free_bytes) - least) / 2);
  const auto fits = [&](const Room& room) {
    return double(gpu_bytes_needed(shape, workspace_bytes, room.more_heads, room.outputs)) - least <= spare;
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
  const int64_t batch_heads = shape.batch_heads();
  const Formula& formula = formula_of(shape);
  const int heads = static_cast<int>(std::min<int64_t>(HEADS_PER_QUESTION, batch_heads));
  // A small problem of the few heads that are looked at.
  const Shape few{.batch = 1, .heads = heads, .n = shape.n, .d = shape.d, .causal = shape.causal};
  std::vector<View> views = all_views(shape, room.more_heads, kind);
  std::shuffle(views.begin(), views.end(), random);
  std::vector<Question> questions;
  for (int i = 0; i < room.outputs; ++i) {
    Question question{views[i % views.size()], {}};  // all the same when there are no more heads
    std::set<int64_t> chosen{0, batch_heads - 1};    // the first and the last head, and others
    while (std::ssize(chosen) < heads) chosen.insert(below(batch_heads));
    Shape none = few;
    none.heads = 0;
    Inputs taken(formula.inputs(none));
    std::set<int64_t> rows;
    std::vector<int64_t> place;  // of a few's head in the output
    for (const int64_t head : chosen) {
      for (size_t i = 0; i < taken.size(); ++i) {
        const int64_t from = head + question.view[i];
        const bool is_more = from >= batch_heads;
        taken.at(i).append((is_more ? more_heads : inputs).at(i), is_more ? from - batch_heads : from, 1);
      }
      for (int row = 0; row < ROWS_PER_HEAD; ++row) rows.insert(std::ssize(place) * shape.n + below(shape.n));
      place.push_back(head);
    }
    question.reference = formula.make_reference(few, taken, {rows.begin(), rows.end()}, 1, true);
    for (int64_t& row : question.reference.rows) row = place[row / shape.n] * shape.n + row % shape.n;
    questions.push_back(std::move(question));
  }
  return questions;
}

Groups::Groups(GroupMemory memory, const Shape& shape, InputKind kind, const Room& room,
               std::vector<Question> questions, double tolerance, uint64_t seed)
    : memory_(std::move(memory)),
      shape_(shape),
      views_(all_views(shape, room.more_heads, kind)),
      room_(room),
      questions_(std::move(questions)),
      tolerance_(tolerance),
      random_(seed),
      negative_(shape.batch_heads() + room.more_heads) {
  // Poison of an answer's size: uniform numbers with the answers' middle and deviation.
  for (const TensorSpec& output : formula_of(shape).outputs(shape)) {
    std::vector<double> values;
    for (const Question& question : questions_) {
      const std::vector<double>& answers = question.reference[output.name].values;
      values.insert(values.end(), answers.begin(), answers.end());
    }
    const Size size = size_of(std::move(values));
    // The first one lies around 0: the odd input has changed its sign in half of the heads.
    const float middle = plausible_.numbers.empty() ? 0.0f : static_cast<float>(size.middle);
    plausible_.numbers.push_back({middle, static_cast<float>(size.spread)});
  }
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
  if (auto status = memory_.negate(formula_of(shape_).odd_input, flip); !status) return status;
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

Status Groups::verify(std::span<const std::string_view> outputs) {
  const std::vector<TensorSpec> inputs = formula_of(shape_).inputs(shape_);
  const auto odd =
      static_cast<size_t>(std::ranges::find(inputs, formula_of(shape_).odd_input, &TensorSpec::name) - inputs.begin());
  std::vector<OutputRow> rows;
  for (const Planned& planned : plan_) {
    if (planned.question < 0) continue;
    for (const int64_t row : questions_[planned.question].reference.rows) rows.push_back({planned.launch.output, row});
  }
  for (const std::string_view output : outputs) {
    const Result<Tensor> left = memory_.read_rows(output, rows);
    if (!left) return tl::make_unexpected(left.error());
    size_t next = 0;
    for (int launch = 0; launch < std::ssize(plan_); ++launch) {
      const Planned& planned = plan_[launch];
      if (planned.question < 0) continue;
      const Reference& reference = questions_[planned.question].reference;
      const Reference::Answer& answer = reference[output];
      for (size_t i = 0; i < reference.rows.size(); ++i, ++next) {
        const int64_t row = reference.rows[i], head = row / shape_.n;
        const double sign =
            &answer == &reference.answers.front() && negative_[planned.launch.view[odd] + head] ? -1 : 1;
        // A row that meets NaN or infinity has no tolerance of its own; its finite columns are held to the plain one.
        const double term = answer.row_tolerance.empty() ? 0 : answer.row_tolerance[i];
        const double tolerance = (answer.baseline.empty() ? 0 : tolerance_) + (std::isfinite(term) ? term : 0);
        for (int column = 0; column < answer.columns; ++column) {
          const double got = (*left)[next * static_cast<size_t>(answer.columns) + static_cast<size_t>(column)];
          const double error = error_of(got, sign * answer.row(i)[column]);
          if (error == 0 || error <= tolerance) continue;  // false for NaN
          return failure(ExitCode::check_failed,
                         fmt::format("wrong in a timed group: launch {} of {}, batch {}, head {}, query {}: {} is off "
                                     "by {:.1e} in column {}; {:.1e} is allowed",
                                     launch + 1, plan_.size(), head / shape_.heads, head % shape_.heads, row % shape_.n,
                                     output, error, column, tolerance));
        }
      }
    }
  }
  return memory_.check_guards();
}

Contestant make_contestant(std::string name, std::shared_ptr<Groups> groups, std::vector<std::string_view> outputs,
                           std::function<Result<double>(std::span<const Launch>)> time_ms) {
  return {.name = std::move(name),
          .time_ms =
              [groups, time_ms = std::move(time_ms)](int launches) {
                const std::vector<Launch> drawn = groups->launches(launches);
                return time_ms(drawn);
              },
          .before = [groups](int launches) { return groups->prepare(launches); },
          .after = [groups, outputs = std::move(outputs)] { return groups->verify(outputs); }};
}

}  // namespace ladder
