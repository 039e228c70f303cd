// Timed groups on the emulator: kernels that are right when they are checked and save work when they are timed. All must
// be caught, and the right one must not.
#include "harness/measure/group.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "harness/tests/catch.hpp"
#include "harness/tests/fakes/right_kernel.cuh"

namespace {

using namespace ladder;

constexpr Shape SHAPE{.batch = 1, .heads = 2, .n = 64};
constexpr int LAUNCHES = 22;  // of a group: more than it has outputs
constexpr int ROUNDS = 20;

using Kernel = std::function<void(const AttentionParams&)>;

void right(const AttentionParams& params) {
  Device device({.threads = 1, .check = false});  // that it is right is known; there are thousands of launches
  run_right(device, params);
}

// What a launch leaves.
struct Answer {
  std::vector<f16> O;
  std::vector<float> LSE;
  explicit Answer(const AttentionParams& params)
      : O(params.O, params.O + SHAPE.elements()), LSE(params.LSE, params.LSE + SHAPE.batch_heads() * SHAPE.n) {}
  void copy_to(const AttentionParams& params) const {
    std::ranges::copy(O, params.O);
    std::ranges::copy(LSE, params.LSE);
  }
};

// The memory of a group, as a GPU would hold it, and a kernel that is launched on it in invented time.
class Emulated {
 public:
  explicit Emulated(Kernel kernel, uint64_t seed = 1, Room room = {}, InputKind kind = InputKind::normal)
      : kernel_(std::move(kernel)), inputs_(make_inputs(kind, SHAPE, 1)) {
    const Inputs more = make_more_heads(kind, SHAPE, 1, room.more_heads);
    std::vector<Question> questions = make_questions(SHAPE, kind, inputs_, more, room, seed);
    double tolerance = 0;
    for (const Question& question : questions) tolerance = std::max(tolerance, question.reference.tolerance());
    for (size_t i = 0; i < more.size(); ++i) inputs_.at(i).append(more.at(i), 0, more.at(i).spec().units());
    outputs_.resize(room.outputs, Tensors(formula_of(SHAPE).outputs(SHAPE)));
    GroupMemory memory{
        .fill_output = [this](int output, const Filling& filling) { return fill(output, filling); },
        .negate = [this](std::string_view name, std::span<const uint8_t> heads) { return negate(name, heads); },
        .read_rows = [this](std::string_view name, std::span<const OutputRow> rows) { return read(name, rows); },
        .check_guards = [] { return Status{}; }};
    groups_ = std::make_shared<Groups>(std::move(memory), SHAPE, kind, room, std::move(questions),
                                       std::vector{tolerance, 0.0}, seed);
  }

  Contestant contestant(double ms = 1) {
    return make_contestant("emulated", groups_, {"O", "LSE"},
                           [=, this](std::span<const Launch> launches) -> Result<double> {
                             for (const Launch& launch : launches) kernel_(params(launch));
                             return ms * static_cast<double>(launches.size());
                           });
  }

  // Of so many groups, the first that is found wrong, from 1 on; 0 if none is.
  int caught_in(int groups, int launches = LAUNCHES) {
    const Contestant contestant = this->contestant();
    for (int group = 1; group <= groups; ++group) {
      REQUIRE(contestant.before(launches));
      REQUIRE(contestant.time_ms(launches));
      if (const Status status = contestant.after(); !status) {
        CHECK(status.error().message.starts_with("wrong in a timed group: launch "));
        return group;
      }
    }
    return 0;
  }

  Groups& groups() { return *groups_; }

 private:
  AttentionParams params(const Launch& launch) {
    Arguments arguments{.spec = SHAPE};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Tensor& input = inputs_.at(i);
      arguments.add({input.name().data(), &input.bytes()[launch.view[i] * input.spec().unit_bytes()], {}});
    }
    for (Tensor& output : outputs_[launch.output]) arguments.add({output.name().data(), output.bytes().data(), {}});
    AttentionParams params;
    convert(arguments, params);
    return params;
  }
  Status fill(int output, const Filling& filling) {
    std::mt19937_64 random(filling.seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    Tensors& tensors = outputs_[output];
    const auto number = [&](size_t i) {
      return filling.numbers[i].middle + filling.numbers[i].spread * uniform(random);
    };
    const bool plausible = !filling.numbers.empty();
    for (f16& value : tensors["O"].half()) value = plausible ? ladder::to_f16(number(0)) : filling.nan;
    for (float& value : tensors["LSE"].single()) value = plausible ? number(1) : NAN;
    return {};
  }
  Status negate(std::string_view name, std::span<const uint8_t> heads) {
    const std::span<f16> values = inputs_.half(name);
    const auto head = static_cast<size_t>(inputs_[name].spec().unit_elements());
    REQUIRE(heads.size() * head == values.size());
    for (size_t i = 0; i < values.size(); ++i) values[i].bits ^= heads[i / head] ? 0x8000 : 0;
    return {};
  }
  Result<Tensor> read(std::string_view name, std::span<const OutputRow> rows) const {
    const TensorSpec& spec = outputs_.front()[name].spec();
    const size_t row_bytes = spec.row_bytes();
    Tensor tensor(ladder::tensor(name, spec.element, {1, 1, std::ssize(rows), spec.columns()}));
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto from = outputs_[rows[i].output][name].bytes().subspan(
          bytes_of(spec.element, spec.index(rows[i].cell.unit, rows[i].cell.row)), row_bytes);
      std::ranges::copy(from, tensor.bytes().begin() + static_cast<std::ptrdiff_t>(i * row_bytes));
    }
    return tensor;
  }

  Kernel kernel_;
  Inputs inputs_;
  std::vector<Tensors> outputs_;
  std::shared_ptr<Groups> groups_;
};

// ---- kernels that save work ------------------------------------------------------------------------------------------

Kernel skips_one_of(int launches) {
  return [=, count = 0](const AttentionParams& params) mutable {
    if (++count % launches != 0) right(params);
  };
}

// It has learnt how long a group is.
Kernel works_once_a_group() {
  return [count = 0](const AttentionParams& params) mutable {
    if (count++ % LAUNCHES == 0) right(params);
  };
}

void works_on_poison(const AttentionParams& params) {
  if (std::isnan(ladder::to_float(params.O[0]))) right(params);
}

Kernel remembers_an_answer() {
  return [known = std::optional<Answer>()](const AttentionParams& params) mutable {
    if (known) return known->copy_to(params);
    right(params);
    known = Answer(params);
  };
}

Kernel remembers_by_address() {
  using Key = std::tuple<const f16*, const f16*, const f16*>;
  return [known = std::map<Key, Answer>()](const AttentionParams& params) mutable {
    const Key key{params.Q, params.K, params.V};
    if (const auto answer = known.find(key); answer != known.end()) return answer->second.copy_to(params);
    right(params);
    known.emplace(key, Answer(params));
  };
}

// Works each time, into the output of the launch before.
Kernel writes_the_output_before() {
  return [before = static_cast<f16*>(nullptr)](AttentionParams params) mutable {
    f16* const own = params.O;
    params.O = std::exchange(before, own);
    if (params.O != nullptr) right(params);
  };
}

// Works every second time; else hands on what the launch before has left.
Kernel copies_the_output_before() {
  return [before = AttentionParams{}, count = 0](const AttentionParams& params) mutable {
    if (count++ % 2 == 0) {
      right(params);
    } else {
      Answer(before).copy_to(params);
    }
    before = params;
  };
}

// Works once for each output.
Kernel keeps_a_stale_output() {
  return [done = std::set<const f16*>()](const AttentionParams& params) mutable {
    if (done.insert(params.O).second) right(params);
  };
}

Kernel forgets_a_head() {
  return [count = 0](AttentionParams params) mutable {
    if (count++ > 0) params.batch_heads -= 1;
    right(params);
  };
}

Kernel writes_LSE_once() {
  return [count = 0](AttentionParams params) mutable {
    static std::vector<float> elsewhere(size_t(SHAPE.batch_heads()) * SHAPE.n);
    if (count++ > 0) params.LSE = elsewhere.data();
    right(params);
  };
}

}  // namespace

TEST_CASE("the right kernel passes its timed groups, of every input and size") {
  for (const InputKind kind : all_input_kinds()) {
    INFO(to_string(kind));
    CHECK(Emulated(right, 1, {}, kind).caught_in(1, 4) == 0);
  }
  for (const int launches : {1, 2, 18, 19}) CHECK(Emulated(right).caught_in(2, launches) == 0);
  for (const Room& room : {Room{0, 1}, Room{0, 2}, Room{8, 1}, Room{8, 3}}) {
    CHECK(Emulated(right, 1, room).caught_in(2) == 0);
  }
}

TEST_CASE("a kernel that does not do the work of every launch is caught in its first group") {
  const std::pair<const char*, std::function<Kernel()>> cheats[] = {
      {"skips every second launch", [] { return skips_one_of(2); }},
      {"works once a group", works_once_a_group},
      {"works on poison", [] { return Kernel(works_on_poison); }},
      {"remembers an answer", remembers_an_answer},
      {"writes the output before", writes_the_output_before},
      {"copies the output before", copies_the_output_before},
      {"forgets a head", forgets_a_head},
      {"writes LSE once", writes_LSE_once},
  };
  for (const auto& [name, cheat] : cheats) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      INFO(name << ", seed " << seed);
      CHECK(Emulated(cheat(), seed).caught_in(1) == 1);
    }
  }
}

TEST_CASE(
    "a kernel that remembers answers by the addresses of their inputs, or keeps old ones, is caught in its second") {
  for (const auto& cheat : {remembers_by_address, keeps_a_stale_output}) {
    const int group = Emulated(cheat()).caught_in(2);
    CHECK(group >= 1);
  }
}

TEST_CASE("a kernel that leaves out one launch of fifty is caught within a run") {
  CHECK(Emulated(skips_one_of(50)).caught_in(ROUNDS) > 0);
  CHECK(Emulated(skips_one_of(50)).caught_in(50 / 2 + 1, 2) > 0);  // a slow kernel: two launches in a group
}

TEST_CASE("the round loop plays by the protocol: who cheats gets no figures") {
  Emulated honest(right), skips(skips_one_of(2)), idle([](const AttentionParams&) {});
  const std::vector<Contestant> contestants{honest.contestant(), skips.contestant(), idle.contestant()};
  const Machine machine{.now_s = [] { return 0.0; }, .sleep_s = [](double) {}};
  const std::vector<double> launch_ms(3, 1.0);
  const auto heat = run_heat(contestants, launch_ms, {.rounds = 2, .group_ms = LAUNCHES - 2, .soak_s = 0}, machine);
  REQUIRE(heat);
  CHECK_FALSE(heat->timings[0].error);
  CHECK(heat->timings[0].ms.size() == 2);
  CHECK(heat->timings[1].error);
  CHECK(heat->timings[2].error);
}

TEST_CASE("a group's launches have inputs of their own, and what is verified cannot be told from what is not") {
  Emulated emulated(right);
  std::array<int, LAUNCHES> own_output{};
  for (int group = 0; group < 50; ++group) {
    REQUIRE(emulated.groups().prepare(LAUNCHES));
    const std::vector<Launch> launches = emulated.groups().launches(LAUNCHES);
    std::set<View> views;
    std::map<int, int> writers;
    for (const auto& [view, output] : launches) {
      views.insert(view);
      ++writers[output];
    }
    CHECK(views.size() == LAUNCHES);
    CHECK(writers.size() >= MOST_OUTPUTS - 1);  // one of the two that alternate may stay out
    for (int i = 0; i < LAUNCHES; ++i) own_output[i] += writers[launches[i].output] == 1;
  }
  for (const int times : own_output) CHECK(times > 20);  // of 50; 16 of 22 launches are 36
}

TEST_CASE("a group takes what memory is to spare, and makes do with an ordinary problem") {
  constexpr size_t GIB = size_t{1} << 30;
  const Shape headline{.batch = 16, .heads = 16, .n = 8192};
  const auto extra = [](const Shape& shape, const Room& room) {
    return gpu_bytes_needed(shape, false, room.more_heads, room.outputs) - gpu_bytes_needed(shape, false);
  };
  const Room large = room_for(headline, false, 140 * GIB);
  CHECK(large.more_heads == MORE_HEADS);
  CHECK(large.outputs == 8);
  CHECK(extra(headline, large) <= 4 * GIB);
  const Room card = room_for(headline, false, 22 * GIB);  // of 24
  CHECK(card.outputs == 8);
  const Room tight = room_for(headline, false, gpu_bytes_needed(headline, false) + GIB / 4);
  CHECK(tight.outputs == 1);
  CHECK(extra(headline, tight) <= GIB / 8);
  CHECK(tight.more_heads > 0);
  const Room small = room_for({.batch = 1, .heads = 1, .n = 512}, false, GIB);
  CHECK(small.outputs == MOST_OUTPUTS);
  const Room none = room_for(headline, false, gpu_bytes_needed(headline, false));
  CHECK(none.outputs == 1);
  CHECK(none.more_heads == 0);
}

TEST_CASE("more heads are other heads") {
  const Shape shape{.batch = 2, .heads = 2, .n = 48, .d = 32};
  const Inputs inputs = make_inputs(InputKind::normal, shape, 7),
               more = make_more_heads(InputKind::normal, shape, 7, 3);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t bytes = inputs.at(i).spec().unit_bytes();
    std::set<std::vector<std::byte>> heads;
    for (const Tensor* tensor : {&inputs.at(i), &more.at(i)}) {
      for (auto all = tensor->bytes(); !all.empty(); all = all.subspan(bytes)) {
        heads.emplace(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(bytes));
      }
    }
    CHECK(heads.size() == 4 + 3);
  }
}

TEST_CASE(
    "intervals are of a sequence's queries, so launches begin nowhere else, and each question is the whole problem") {
  const Spec spec = parse_spec("b=2 h=3 n=80 d=16 causal documents=3").value();
  CHECK(room_for(spec, 0, size_t{8} << 30).more_heads == 0);
  const Inputs all = make_inputs(InputKind::normal, spec, 1);
  for (const auto& [view, reference] :
       make_questions(spec, InputKind::normal, all, {}, {.more_heads = 0, .outputs = 3}, 5)) {
    const Cells cells{reference["O"].cells, reference["LSE"].cells};
    const Reference expected = formula_of(spec).make_reference(spec, all, cells, 1, true);
    CHECK(cells.front().back().unit == spec.batch_heads() - 1);
    CHECK(reference["O"].values == expected["O"].values);
    CHECK(reference["LSE"].values == expected["LSE"].values);
  }
}

TEST_CASE("questions are of different views, and their answers those of the formula") {
  const Shape shapes[] = {{.batch = 2, .heads = 3, .n = 80, .d = 16},
                          {.n = 80, .d = 16, .causal = true},
                          {.batch = 3, .heads = 1, .n = 80, .d = 16},
                          {.batch = 2, .heads = 6, .kv_heads = 2, .n = 80, .d = 16},
                          {.batch = 2, .heads = 6, .kv_heads = 2, .n = 80, .d = 16, .alibi = true, .sink = true}};
  for (const Shape& shape : shapes) {
    for (const InputKind kind : {InputKind::normal, InputKind::one_hot}) {
      CAPTURE(shape.batch_heads(), shape.causal, to_string(kind));
      const Room room{.more_heads = 3, .outputs = 4};
      Inputs all = make_inputs(kind, shape, 1);
      const Inputs more = make_more_heads(kind, shape, 1, room.more_heads);
      const std::vector<Question> questions = make_questions(shape, kind, all, more, room, 5);
      std::vector<int64_t> units;  // that a launch reads of each input
      for (size_t i = 0; i < all.size(); ++i) {
        units.push_back(all.at(i).spec().units());
        if (!all.at(i).spec().is_fixed) all.at(i).append(more.at(i), 0, more.at(i).spec().units());
      }
      std::set<View> views;
      const int64_t heads = shape.batch_heads(), group = shape.heads / shape.key_heads();
      for (const auto& [view, reference] : questions) {
        views.insert(view);
        std::set<int64_t> heads_asked;
        Cells cells;
        for (const Reference::Answer& answer : reference.answers) {
          cells.push_back(answer.cells);
          for (const Cell& cell : answer.cells) heads_asked.insert(cell.unit);
        }
        CHECK(std::ssize(heads_asked) == std::min<int64_t>(4, heads / group) * group);
        CHECK(heads_asked.contains(0));
        CHECK(heads_asked.contains(heads - 1));
        Inputs seen(
            formula_of(shape).inputs({.batch = shape.batch, .heads = 0, .kv_heads = 0, .n = shape.n, .d = shape.d}));
        for (size_t i = 0; i < all.size(); ++i) {
          if (all.at(i).spec().is_fixed) {
            seen.add(all.at(i));
          } else {
            seen.at(i).append(all.at(i), view[i], units[i]);
          }
        }
        const Reference expected = formula_of(shape).make_reference(shape, seen, cells, 1, true);
        REQUIRE(reference.answers.size() == expected.answers.size());
        for (size_t i = 0; i < expected.answers.size(); ++i) {
          CHECK(reference.answers[i].values == expected.answers[i].values);
          CHECK(reference.answers[i].row_tolerance == expected.answers[i].row_tolerance);
        }
      }
      CHECK(views.size() == 4);
    }
  }
}

// ---- groups of answers that are written down -------------------------------------------------------------------------

namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr Shape SMALL{.batch = 2, .heads = 2, .n = 4, .d = 2};

// An answer in three rows, of the heads 0, 1 and 3: all numbers are small, so that the sums below are exact.
Question question(View view, double first) {
  Question question{std::move(view), {}};
  const std::vector<Cell> cells{{0, 1}, {1, 2}, {3, 3}};
  question.reference.answers = {
      {.output = "O",
       .columns = 2,
       .cells = cells,
       .values = {first, -2, 3, 4, -5, 6},
       .baseline = {{0.25, 0.125}},
       .row_tolerance = {0.125, INFINITE, 0.25}},
      {.output = "LSE", .columns = 1, .cells = cells, .values = {8, 9, 10}, .row_tolerance = {0.5, 0.25, 0}}};
  return question;
}

// The memory of groups whose kernel is right: a launch leaves the answers of its view.
class Ideal {
 public:
  explicit Ideal(std::vector<Question> questions, Room room, uint64_t seed = 1, double tolerance = 0.25,
                 const Shape& shape = SMALL)
      : shape_(shape),
        questions_(questions),
        negative_(shape.batch_heads() + room.more_heads),
        groups_(
            {.fill_output = [](int, const Filling&) { return Status{}; },
             .negate = [this](std::string_view name, std::span<const uint8_t> flip) -> Status {
               CHECK(name == "V");
               REQUIRE(flip.size() == negative_.size());
               for (size_t i = 0; i < flip.size(); ++i) negative_[i] ^= flip[i];
               flips.emplace_back(flip.begin(), flip.end());
               return {};
             },
             .read_rows = [this](std::string_view name, std::span<const OutputRow> rows) { return read(name, rows); },
             .check_guards = [this]() -> Status {
               return refused == "guards" ? failure(ExitCode::check_failed, refused) : Status{};
             }},
            shape, InputKind::normal, room, std::move(questions), std::vector{tolerance, 0.0}, seed) {}

  // Prepares a group and launches it.
  std::vector<Launch> launch(int count) {
    REQUIRE(groups_.prepare(count));
    const std::vector<Launch> launches = groups_.launches(count);
    for (const Launch& launch : launches) written_[launch.output] = launch.view;
    return launches;
  }
  Status verify(std::vector<std::string_view> outputs = {"O", "LSE"}) { return groups_.verify(outputs); }
  const Question* question_of(const View& view) const {
    const auto found = std::ranges::find(questions_, view, &Question::view);
    return found == questions_.end() ? nullptr : &*found;
  }
  bool negative(const Launch& launch, const Cell& cell) const { return negative_[launch.view[2] + cell.unit] != 0; }

  std::vector<std::vector<uint8_t>> flips;
  std::string refused;  // by the memory
  std::function<double(std::string_view name, const OutputRow&, int column, double)> changed;

 private:
  Result<Tensor> read(std::string_view name, std::span<const OutputRow> rows) {
    if (refused == "read") return failure(ExitCode::check_failed, refused);
    const int columns = name == "O" ? shape_.d : 1;
    Tensor tensor(ladder::tensor(name, Element::f32, {1, 1, std::ssize(rows), columns}));
    size_t next = 0;
    for (const OutputRow& row : rows) {
      const View& view = written_.at(row.output);
      const Question* const known = question_of(view);
      REQUIRE(known != nullptr);
      const std::vector<Cell>& cells = known->reference[name].cells;
      const auto place = std::ranges::find(cells, row.cell) - cells.begin();
      REQUIRE(place < std::ssize(cells));
      for (int column = 0; column < columns; ++column) {
        double value = known->reference[name].row(static_cast<size_t>(place))[column];
        if (name == "O" && negative({view, row.output}, row.cell)) value = -value;
        tensor.single()[next++] = static_cast<float>(changed ? changed(name, row, column, value) : value);
      }
    }
    return tensor;
  }

  Shape shape_;
  std::vector<Question> questions_;
  std::vector<uint8_t> negative_;
  std::map<int, View> written_;  // by output
  Groups groups_;
};

std::vector<Question> three_questions() {
  return {question({0, 1, 2}, 1), question({1, 2, 0}, 11), question({2, 0, 1}, 21)};
}

}  // namespace

TEST_CASE("each number of a verified launch is held to its own tolerance, and the report names its place") {
  struct Place {
    Cell cell;
    const char* text;
    double O, LSE;  // allowed there
  };
  const Place places[] = {{{0, 1}, "batch 0, head 0, query 1", 0.375, 0.5},
                          {{1, 2}, "batch 0, head 1, query 2", 0.25, 0.25},  // the row has none of its own
                          {{3, 3}, "batch 1, head 1, query 3", 0.5, 0}};
  for (const Place& place : places) {
    for (const std::string_view name : {"O", "LSE"}) {
      for (int which = 0; which < 3; ++which) {
        CAPTURE(place.text, name, which);
        Ideal ideal(three_questions(), {.more_heads = 2, .outputs = 3}, 3 + which);
        const std::vector<Launch> launches = ideal.launch(3);
        const int last = name == "O" ? 1 : 0;  // column
        const double allowed = name == "O" ? place.O : place.LSE;
        double off = 0;
        ideal.changed = [&](std::string_view output, const OutputRow& row, int at, double value) {
          const bool here =
              output == name && row.cell == place.cell && at == last && row.output == launches[which].output;
          return here ? value + off : value;
        };
        for (const double sign : {1.0, -1.0}) {
          off = sign * allowed;
          CHECK(ideal.verify());
          for (const double wrong : {allowed + 0.125, INFINITE, double(NAN)}) {
            off = sign * wrong;
            const Status status = ideal.verify();
            REQUIRE_FALSE(status);
            CHECK(status.error().code == ExitCode::check_failed);
            const std::string where = fmt::format("launch {} of 3, {}: {} is off", which + 1, place.text, name);
            CHECK_THAT(status.error().message, Contains(where));
            if (name == "LSE") CHECK(ideal.verify({"O"}));  // who writes no LSE is not asked for it
          }
        }
      }
    }
  }
}

TEST_CASE("without tolerances of the rows the plain one is all there is, and where there is none nothing may be off") {
  std::vector<Question> questions{question({0, 0, 0}, 1)};
  for (Reference::Answer& answer : questions[0].reference.answers) answer.row_tolerance = {};
  for (const std::string_view name : {"O", "LSE"}) {
    for (const double off : {0.0, 0.125, 0.25, 0.375, 0.75}) {
      CAPTURE(name, off);
      Ideal ideal(questions, {.more_heads = 0, .outputs = 1});
      ideal.launch(1);
      ideal.changed = [&](std::string_view output, const OutputRow& row, int, double value) {
        return output == name && row.cell == Cell{1, 2} ? value - off : value;
      };
      CHECK(bool(ideal.verify()) == (off <= (name == "O" ? 0.25 : 0)));
    }
  }
}

TEST_CASE("before every group the sign of each head is drawn, however many heads there are") {
  for (int heads = 1; heads <= 40; ++heads) {
    CAPTURE(heads);
    Shape shape = SMALL;
    shape.batch = 1;
    shape.heads = heads;
    const int more_heads = heads % 9;
    Ideal ideal({question(View(3, 0), 1)}, {.more_heads = more_heads, .outputs = 1}, 1, 0.25, shape);
    std::vector<int> flipped(static_cast<size_t>(heads + more_heads));
    for (int group = 0; group < 20; ++group) {
      ideal.launch(1);
      REQUIRE(ideal.flips.back().size() == flipped.size());
      for (size_t head = 0; head < flipped.size(); ++head) flipped[head] += ideal.flips.back()[head];
    }
    for (const int times : flipped) {
      CHECK(times > 0);
      CHECK(times < 20);
    }
  }
}

TEST_CASE("where the formula makes NaN only that will do, where it makes infinity that or NaN") {
  std::vector<Question> questions{question({0, 0, 0}, NAN)};
  questions[0].reference.answers[0].values[2] = INFINITE;
  questions[0].reference.answers[0].row_tolerance = {};
  questions[0].reference.answers[1].values[0] = -INFINITE;
  const auto passes = [&](std::string_view name, const Cell& cell, int column, double left) {
    Ideal ideal(questions, {.more_heads = 0, .outputs = 1});
    const std::vector<Launch> launches = ideal.launch(1);
    ideal.changed = [&](std::string_view output, const OutputRow& at, int k, double value) {
      const bool here = output == name && at.cell == cell && k == column;
      return here ? (name == "O" && ideal.negative(launches[0], cell) ? -left : left) : value;
    };
    const Status status = ideal.verify();
    if (!status) CHECK_THAT(status.error().message, Contains(" is off by inf in column "));
    return bool(status);
  };
  CHECK(passes("O", {0, 1}, 0, NAN));
  for (const double number : {0.0, 1.0, INFINITE, -INFINITE}) CHECK_FALSE(passes("O", {0, 1}, 0, number));
  CHECK(passes("O", {1, 2}, 0, INFINITE));
  CHECK(passes("O", {1, 2}, 0, NAN));
  for (const double number : {0.0, 65504.0, -INFINITE}) CHECK_FALSE(passes("O", {1, 2}, 0, number));
  CHECK(passes("LSE", {0, 1}, 0, -INFINITE));
  CHECK(passes("LSE", {0, 1}, 0, NAN));
  for (const double number : {0.0, -1e30, INFINITE}) CHECK_FALSE(passes("LSE", {0, 1}, 0, number));
}

TEST_CASE("what the memory of a group refuses is said") {
  for (const std::string refused : {"read", "guards"}) {
    Ideal ideal(three_questions(), {.more_heads = 2, .outputs = 3});
    ideal.launch(3);
    REQUIRE(ideal.verify());
    ideal.refused = refused;
    const Status status = ideal.verify();
    REQUIRE_FALSE(status);
    CHECK(status.error().message == refused);
  }
}

// The memory answers with the reference for what lies in it at that moment.
TEST_CASE("gradients of keys that several heads share are right in timed groups") {
  const Spec spec = *parse_spec("backward b=2 h=4 kv=2 n=24 d=32");
  const Formula& formula = formula_of(spec);
  const InputKind kind = InputKind::normal;
  Inputs inputs = formula.make_inputs({&kind, 1}, spec, 1);
  const Room room{.more_heads = 0, .outputs = 1};
  std::vector<Question> questions = make_questions(spec, kind, inputs, {}, room, 1);
  std::vector<double> tolerances;
  for (const Reference::Answer& answer : questions.front().reference.answers) tolerances.push_back(answer.tolerance());
  GroupMemory memory{.fill_output = [](int, const Filling&) { return Status{}; },
                     .negate =
                         [&](std::string_view name, std::span<const uint8_t> units) {
                           const std::span<f16> values = inputs.half(name);
                           for (size_t i = 0; i < values.size(); ++i)
                             values[i].bits ^= units[i * units.size() / values.size()] ? 0x8000 : 0;
                           return Status{};
                         },
                     .read_rows = [&](std::string_view name, std::span<const OutputRow> rows) -> Result<Tensor> {
                       const std::vector<TensorSpec> outputs = formula.outputs(spec);
                       Cells cells(outputs.size());
                       const auto which =
                           static_cast<size_t>(std::ranges::find(outputs, name, &TensorSpec::name) - outputs.begin());
                       for (const OutputRow& row : rows) cells[which].push_back(row.cell);
                       const Reference reference = formula.make_reference(spec, inputs, cells, 1, true);
                       Tensor left(tensor(name, outputs[which].element, {1, 1, std::ssize(rows), spec.d}));
                       const std::vector<double>& values = reference[name].values;
                       for (size_t i = 0; i < values.size(); ++i) left.set(static_cast<int64_t>(i), values[i]);
                       return left;
                     },
                     .check_guards = [] { return Status{}; }};
  Groups groups(std::move(memory), spec, kind, room, std::move(questions), tolerances, 1);
  for (int group = 0; group < 8; ++group) {
    REQUIRE(groups.prepare(1));
    groups.launches(1);
    const Status status = groups.verify(std::array<std::string_view, 3>{"dQ", "dK", "dV"});
    INFO((status ? "" : status.error().message));
    CHECK(status);
  }
}
