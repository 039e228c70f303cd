#include "harness/measure/group.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "harness/problem/formula.hpp"

namespace ladder {
namespace {

constexpr double MOST_BYTES = 4.0 * (1 << 30);  // that go into what only groups need
constexpr int HEADS_PER_QUESTION = 4, ROWS_PER_HEAD = 8;

// Numbers of the answers' size: uniform within middle +-spread, they have the middle and the deviation of `values`. What
// is not finite does not count. The spread is never 0.
Filling::Numbers size_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  const auto count = static_cast<double>(std::max<size_t>(values.size(), 1));
  const double middle = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return {static_cast<float>(middle), static_cast<float>(std::max(std::sqrt(3 * squares / count), 0.01))};
}

// A NaN that a kernel cannot know: its payload is drawn. Not infinity, whose payload is 0.
f16 drawn_nan(uint64_t bits) {
  return {static_cast<uint16_t>(0x7c00 | (bits & 0x8000) | std::max<uint64_t>(1, bits & 0x3ff))};
}

// The formula's inputs in their order, each from a unit of its own on.
std::vector<View> all_views(const Spec& spec, int more_heads, InputKind kind) {
  const std::vector<TensorSpec> inputs = formula_of(spec).inputs(spec);
  std::vector<std::string_view> together = formula_of(spec).together;
  if (together.empty() && kind == InputKind::one_hot) together = {"Q", "K"};  // a query is made from a key of its head
  const auto agree = [&](const View& view) {
    std::optional<int64_t> common;
    for (size_t i = 0; i < view.size(); ++i) {
      const int64_t group = units_of_more(inputs, inputs[i], 1);
      if (group == 0 || std::ranges::find(together, inputs[i].name) == together.end()) continue;
      if (view[i] % group != 0 || (common && *common != view[i] / group)) return false;
      common = view[i] / group;
    }
    return true;
  };
  std::vector<View> views{{}};
  for (const TensorSpec& input : inputs) {
    std::vector<View> longer;
    for (const View& view : views) {
      for (int64_t unit = 0; unit <= units_of_more(inputs, input, more_heads); unit += input.unit_step()) {
        longer.push_back(view);
        longer.back().push_back(static_cast<int>(unit));
        if (!agree(longer.back())) longer.pop_back();
      }
    }
    views = std::move(longer);
  }
  return views;
}

// So many units of each input from where a launch of that view begins, by their numbers among the fewest.
Inputs seen_by(const View& view, const Spec& spec, const std::vector<int64_t>& chosen, const Inputs& inputs,
               const Inputs& more_heads) {
  const std::vector<TensorSpec> all = formula_of(spec).inputs(spec);
  Inputs taken;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t group = units_of_more(all, all[i], 1);
    if (all[i].per_head) {  // whatever heads a launch begins at
      const int64_t heads = spec.heads / spec.key_heads();
      Tensor& tensor =
          taken.add(Tensor(ladder::tensor(all[i].name, all[i].element, {1, 1, 1, std::ssize(chosen) * heads})));
      for (int64_t k = 0; k < tensor.spec().columns(); ++k) {
        const int64_t head = chosen[static_cast<size_t>(k / heads)] % spec.key_heads() * heads + k % heads;
        tensor.set(k, inputs.at(i)[static_cast<size_t>(head)]);
      }
      continue;
    }
    if (group == 0) {
      taken.add(inputs.at(i));
      continue;
    }
    Tensor& tensor =
        taken.add(Tensor(ladder::tensor(all[i].name, all[i].element, {1, 0, all[i].rows(), all[i].columns()})));
    const int64_t known = inputs.at(i).spec().units();
    for (const int64_t unit : chosen) {
      for (int64_t from = unit * group + view[i], end = from + group; from < end;
           ++from) {  // a group may lie on the border
        const bool is_more = from >= known;
        tensor.append((is_more ? more_heads : inputs).at(i), is_more ? from - known : from, 1);
      }
    }
  }
  return taken;
}

}  // namespace

Room room_for(const Shape& shape, uint64_t workspace_bytes, size_t free_bytes) {
  const auto least = double(gpu_bytes_needed(shape, workspace_bytes));
  const double spare = std::min(MOST_BYTES, (double(free_bytes) - least) / 2);
  const auto fits = [&](const Room& room) {
    return double(gpu_bytes_needed(shape, workspace_bytes, room.more_heads, room.outputs)) - least <= spare;
  };
  Room room;
  const Formula& formula = formula_of(shape);
  const bool alike = shape.lens_q.count == 0 && shape.lens_k.count == 0 && !shape.has_cache() &&
                     !shape.has_listed_keys();  // any keys may meet any queries
  const int step = shape.layout == Layout::bhnd ? 1 : shape.key_heads();
  room.more_heads = formula.of_heads == nullptr || !alike ? 0 : (MORE_HEADS + step - 1) / step * step;
  while (room.outputs > 1 && !fits(room)) --room.outputs;
  while (room.more_heads > 0 && !fits(room)) room.more_heads -= step;
  return room;
}

Inputs make_more_heads(InputKind kind, const Shape& shape, uint64_t seed, int more_heads) {
  if (more_heads == 0) return {};
  Spec more = shape;
  if (shape.layout == Layout::bhnd) {
    more = formula_of(shape).of_heads(shape, more_heads);
    more.pad = shape.pad;
  } else {
    more.batch = more_heads / shape.key_heads();
  }
  return formula_of(shape).make_inputs({&kind, 1}, more, ~seed);
}

std::vector<Question> make_questions(const Shape& shape, InputKind kind, const Inputs& inputs, const Inputs& more_heads,
                                     const Room& room, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random); };
  const Formula& formula = formula_of(shape);
  const std::vector<TensorSpec> outputs = formula.outputs(shape);
  const int64_t units = fewest_units(inputs);
  // Of a small problem with the few units that are looked at, where a unit is a problem by itself; or else of the whole one.
  const bool is_few = formula.of_heads != nullptr && shape.lens_q.count == 0 && shape.lens_k.count == 0 &&
                      !shape.has_cache() && !shape.has_listed_keys();
  const auto heads = is_few ? std::min<int64_t>(HEADS_PER_QUESTION, units) : units;
  const Spec few = is_few ? formula.of_heads(shape, static_cast<int>(heads)) : shape;
  std::vector<View> views = all_views(shape, room.more_heads, kind);
  std::shuffle(views.begin(), views.end(), random);
  std::vector<Question> questions;
  for (int i = 0; i < room.outputs; ++i) {
    if (!is_few && i > 0) {  // its rows are many, and no launch begins elsewhere: asked once, for each output
      questions.push_back(questions.front());
      continue;
    }
    Question question{views[i % views.size()], {}};  // all the same when there are no more heads
    std::set<int64_t> chosen{0, units - 1};          // the first and the last unit, and others
    while (std::ssize(chosen) < heads) chosen.insert(below(units));
    const std::vector<int64_t> place(chosen.begin(), chosen.end());  // of a few's unit in the problem
    const Inputs taken = is_few ? seen_by(question.view, shape, place, inputs, more_heads) : inputs;
    // Rows of few's outputs; those that have the same rows are asked for the same ones.
    Cells cells;
    for (const TensorSpec& output : formula.outputs(few)) {
      if (!cells.empty() && output.shape[2] == outputs.front().shape[2] &&
          output.units() == formula.outputs(few).front().units()) {
        cells.push_back(cells.front());
        continue;
      }
      std::set<Cell> drawn;
      for (int64_t unit = 0; unit < output.units(); ++unit) {
        for (int row = 0; row < ROWS_PER_HEAD && output.rows_of(unit) > 0; ++row)
          drawn.insert({unit, below(output.rows_of(unit))});
      }
      cells.emplace_back(drawn.begin(), drawn.end());
    }
    question.reference = formula.make_reference(few, taken, cells, 1, true);
    for (size_t k = 0; is_few && k < outputs.size(); ++k) {
      const int64_t group = std::max<int64_t>(1, outputs[k].units() / units);
      for (Cell& cell : question.reference.answers[k].cells)
        cell.unit = place[cell.unit / group] * group + cell.unit % group;
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

Groups::Groups(GroupMemory memory, const Spec& shape, InputKind kind, const Room& room, std::vector<Question> questions,
               std::vector<double> tolerances, uint64_t seed)
    : memory_(std::move(memory)),
      formula_(formula_of(shape)),
      inputs_(formula_.inputs(shape)),
      outputs_(formula_.outputs(shape)),
      odd_(place_of(inputs_, formula_.odd_input)),
      views_(all_views(shape, room.more_heads, kind)),
      room_(room),
      questions_(std::move(questions)),
      tolerances_(std::move(tolerances)),
      random_(seed) {
  // Of whole numbers no bit is the sign: theirs stays.
  if (odd_ < inputs_.size() && inputs_[odd_].element != Element::s8 && inputs_[odd_].element != Element::s4)
    negative_.resize(inputs_[odd_].units() + units_of_more(inputs_, inputs_[odd_], room.more_heads));
  // Poison of an answer's size: uniform numbers with the answers' middle and deviation.
  for (const TensorSpec& output : outputs_) {
    std::vector<double> values;
    for (const Question& question : questions_) {
      const std::vector<double>& answers = question.reference[output.name].values;
      values.insert(values.end(), answers.begin(), answers.end());
    }
    plausible_.numbers.push_back(size_of(std::move(values)));
    // One that has changed its sign in half of the units lies around 0.
    if (is_odd(output.name)) plausible_.numbers.back().middle = 0;
  }
}

bool Groups::is_odd(std::string_view output) const {
  return !negative_.empty() && std::ranges::find(formula_.odd_outputs, output) != formula_.odd_outputs.end();
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
  // Units that an output has the sum of change their sign together.
  size_t together = 1;
  for (const TensorSpec& output : outputs_) {
    if (negative_.empty() || !is_odd(output.name) || output.units() == 0) continue;
    together = std::max(together, static_cast<size_t>(inputs_[odd_].units() / output.units()));
  }
  std::vector<uint8_t> flip(negative_.size());
  for (size_t head = 0; head < flip.size(); ++head) {
    flip[head] = head % together != 0 ? flip[head - 1] : random_() % 2;
    negative_[head] ^= flip[head];
  }
  if (!flip.empty()) {
    if (auto status = memory_.negate(formula_.odd_input, flip); !status) return status;
  }
  plan_ = draw_plan(launches);
  std::set<int> written;
  for (const Planned& planned : plan_) written.insert(planned.launch.output);
  for (const int output : written) {
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
  for (const std::string_view output : outputs) {
    const size_t which = place_of(outputs_, output);
    const TensorSpec& spec = outputs_[which];
    std::vector<OutputRow> rows;
    for (const Planned& planned : plan_) {
      if (planned.question < 0) continue;
      for (const Cell& cell : questions_[planned.question].reference[output].cells)
        rows.push_back({planned.launch.output, cell});
    }
    const Result<Tensor> left = memory_.read_rows(output, rows);
    if (!left) return passed_on(left);
    size_t next = 0;
    for (int launch = 0; launch < std::ssize(plan_); ++launch) {
      const Planned& planned = plan_[launch];
      if (planned.question < 0) continue;
      const Reference::Answer& answer = questions_[planned.question].reference[output];
      for (size_t i = 0; i < answer.cells.size(); ++i, ++next) {
        const auto [unit, row] = answer.cells[i];
        double sign = 1;
        if (is_odd(output)) {
          const int64_t of_odd = inputs_[odd_].is_fixed ? 0 : unit * inputs_[odd_].units() / spec.units();
          if (negative_[planned.launch.view[odd_] + of_odd]) sign = -1;
        }
        // A row that meets NaN or infinity has no tolerance of its own; its finite columns are held to the plain one.
        const double term = answer.row_tolerance.empty() ? 0 : answer.row_tolerance[i];
        const double tolerance = (answer.baseline.empty() ? 0 : tolerances_[which]) + (std::isfinite(term) ? term : 0);
        for (int64_t column = 0; column < answer.columns; ++column) {
          const double got = (*left)[next * static_cast<size_t>(answer.columns) + static_cast<size_t>(column)];
          const double error = error_of(got, sign * answer.row(i)[static_cast<size_t>(column)]);
          if (error == 0 || error <= tolerance) continue;  // false for NaN
          return failure(ExitCode::check_failed,
                         "wrong in a timed group: launch {} of {}, batch {}, head {}, {} {}: {} is off "
                         "by {:.1e} in column {}; {:.1e} is allowed",
                         launch + 1, plan_.size(), unit / spec.shape[1], unit % spec.shape[1], spec.row, row, output,
                         error, column, tolerance);
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
