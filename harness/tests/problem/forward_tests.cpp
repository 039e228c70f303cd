// Attention beyond dense, square and f16: the reference against the formula as written, and kernels on the emulator that read
// tensors by their strides.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "harness/problem/problem.hpp"
#include "harness/problem/spec.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"

namespace {

using namespace ladder;

constexpr double INFINITE = std::numeric_limits<double>::infinity();

struct Row {
  std::vector<double> O;
  double lse = 0;
};

// Whether the lists let a query see a key, as a kernel reads them.
bool is_listed(const Spec& spec, const Inputs& inputs, int64_t unit, int64_t query, int64_t key) {
  const auto number = [&](const char* name, int64_t column) {
    const Tensor& tensor = inputs[name];
    return static_cast<int64_t>(
        tensor[static_cast<size_t>(tensor.spec().index(unit, query / Blocks::QUERIES) + column)]);
  };
  for (int64_t i = 0; i < number("counts", 0); ++i) {
    if (number("lists", 2 * i) != key / spec.blocks.keys) continue;
    const int64_t stencil = number("lists", 2 * i + 1) + key % spec.blocks.keys / 64, row = query % Blocks::QUERIES;
    const int64_t word = (stencil * Blocks::QUERIES + row) * 2 + key % 64 / 32;
    const auto bits = static_cast<int64_t>(inputs["stencils"][static_cast<size_t>(word)]);
    return i < number("counts", 1) || (bits >> key % 32 & 1) == 1;
  }
  return false;
}

// One row, key by key: who is seen, and how high.
Row plain_row(const Spec& spec, const Inputs& inputs, int64_t unit, int64_t query) {
  const int64_t sequence = unit / spec.heads, head = unit % spec.heads;
  const int64_t key_unit = sequence * spec.key_heads() + head * spec.key_heads() / spec.heads;
  const int64_t queries = spec.lens_q.count ? spec.lens_q.of[sequence] : spec.n;
  const int64_t keys = spec.lens_k.count ? spec.lens_k.of[sequence] : spec.keys();
  const auto number = [&](const char* name, int64_t of_unit, int64_t row, int64_t column) {
    const Tensor& tensor = inputs[name];
    return tensor[static_cast<size_t>(tensor.spec().index(of_unit, row) + column)];
  };
  std::vector<double> scores;
  double largest = -INFINITE;
  for (int64_t key = 0; key < keys; ++key) {
    const int64_t distance = key - (query + keys - queries);
    const auto of_query = [&](const char* name) {
      return inputs[name][static_cast<size_t>(sequence * spec.n + query)];
    };
    const bool hidden = (spec.causal && distance > 0) || (spec.left >= 0 && distance < -spec.left) ||
                        (spec.right >= 0 && distance > spec.right) ||
                        (spec.intervals && (double(key) < of_query("first") || double(key) >= of_query("end"))) ||
                        (spec.blocks && !is_listed(spec, inputs, unit, query, key));
    double score = 0;
    for (int64_t c = 0; c < spec.d; ++c) score += number("Q", unit, query, c) * number("K", key_unit, key, c);
    score *= spec.scale();
    if (spec.softcap > 0) score = spec.softcap * std::tanh(score / spec.softcap);
    if (spec.alibi) score -= inputs["slopes"][static_cast<size_t>(head)] * std::abs(double(distance));
    scores.push_back(hidden ? -INFINITE : score);
    largest = std::max(largest, scores.back());
  }
  if (spec.sink) largest = std::max(largest, inputs["sinks"][static_cast<size_t>(head)]);
  Row row{std::vector<double>(spec.d), -INFINITE};
  if (largest == -INFINITE) return row;
  double sum = spec.sink ? std::exp(inputs["sinks"][static_cast<size_t>(head)] - largest) : 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (int64_t key = 0; key < keys; ++key) {
    if (scores[key] == 0) continue;  // NaN of a key that is not seen
    for (int64_t c = 0; c < spec.d; ++c) row.O[c] += scores[key] / sum * number("V", key_unit, key, c);
  }
  row.lse = largest + std::log(sum);
  return row;
}

const char* const PROBLEMS[] = {
    "h=6 kv=2 n=40 d=16",
    "b=2 h=4 kv=1 nq=7 nk=50 d=16 causal",
    "h=2 nq=50 nk=7 d=16 causal",  // the first queries see no key
    "h=2 nq=1 nk=65 d=24 bf16",
    "h=2 n=48 d=16 causal window=5,0",
    "h=2 n=48 d=16 window=3,9",
    "h=2 n=40 d=16 softcap=2",
    "h=4 n=40 d=16 causal alibi",
    "h=3 n=40 d=16 sink",
    "h=2 nq=9 nk=3 d=16 causal sink",
    "b=3 h=2 nq=20 nk=30 d=16 causal lens_q=20,3,0 lens_k=10,0,30",
    "b=2 h=4 kv=2 n=33 d=16 bf16 causal window=20,0 softcap=5 alibi sink lens_q=33,20 lens_k=12,33",
    "b=2 h=2 n=40 d=16 causal documents=4",
    "b=2 h=4 kv=2 nq=30 nk=50 d=16 scattered=4 sink",
    "h=2 n=40 d=16 bf16 window=9,3 documents=3@8 prefix=5 alibi",
    "b=2 h=1 n=12 d=16 intervals=5*3:9,10*-4:2,3*8:5,1*0:99",
    "b=2 h=2 nq=150 nk=300 d=16 causal blocks=0.6@3 partial=0.4",
    "h=2 kv=1 nq=130 nk=250 d=16 bf16 blocks=0.5 block_keys=64 sink",
    "h=1 n=257 d=16 documents=3 blocks=0.7@2 partial=0.2 block_keys=64",
};

}  // namespace

TEST_CASE("intervals are those that the words say") {
  const auto seen = [](const char* text) {
    const Spec spec = parse_spec(text).value();
    std::string all;
    for (int64_t sequence = 0; sequence < spec.batch; ++sequence) {
      for (int64_t query = 0; query < spec.n; ++query) {
        std::string one;
        for_each_run_of_keys(spec, sequence, query,
                             [&](const Keys& run) { one += fmt::format("{}-{}", run.first, run.last); });
        all += one + " ";
      }
    }
    return all;
  };
  CHECK(seen("n=4 documents=1") == "0-4 0-4 0-4 0-4 ");
  CHECK(seen("n=4 prefix=0") == seen("n=4 causal"));
  CHECK(seen("n=4 prefix=2") == "0-2 0-2 0-3 0-4 ");
  CHECK(seen("nq=2 nk=5 prefix=2") == "0-4 0-5 ");
  CHECK(seen("b=2 n=3 intervals=1*0:2,3*1:9,1*-3:1") == "0-2 1-3 1-3 1-3 0-1 0-1 ");
  CHECK(seen("n=3 intervals=1*2:2,1*2:1,1*3:7") == "   ");
  CHECK(seen("n=4 intervals=2*0:2,2*2:4 causal") == "0-1 0-2 2-3 2-4 ");
  CHECK(seen("n=6 intervals=6*1:6 prefix=2 window=2,-1") == "1-3 1-3 1-3 1-4 2-5 3-6 ");
  // Documents lie side by side, each of its queries sees all of it, and with another seed or in another sequence they are others.
  for (const char* text : {"n=50 documents=5", "n=50 documents=5@2", "b=2 n=50 documents=5", "n=9 documents=40"}) {
    const Spec spec = parse_spec(text).value();
    for (int64_t sequence = 0; sequence < spec.batch; ++sequence) {
      for (int64_t query = 0; query < spec.n; ++query) {
        const KeyRuns own = runs_of_keys(spec, sequence, query);
        REQUIRE(own.size() == 1);
        CHECK(own.front().has(query));
        CHECK(runs_of_keys(spec, sequence, own.front().first).front().last == own.front().last);
      }
    }
  }
  CHECK(seen("n=50 documents=5") != seen("n=50 documents=5@2"));
  CHECK(seen("b=2 n=50 documents=5") != seen("n=50 documents=5") + seen("n=50 documents=5"));
}

TEST_CASE("no more heads behind the sequences of a launch take no more and no less memory") {
  for (const char* words : {"b=3 h=1 n=9 lens_q=4,0,9 lens_k=9,2,5", "b=3 h=2 n=9 lens_q=4,0,9", "b=2 h=3 n=9 pad=8",
                            "b=2 h=3 n=9 layout=bnhd", "b=2 h=3 n=9"}) {
    CAPTURE(words);
    const Spec spec = *parse_spec(words);
    for (const TensorSpec& input : formula_of(spec).inputs(spec)) {
      CHECK(input.with_more(0).memory_bytes() == input.memory_bytes());
      CHECK(input.with_more(input.shape[1]).memory_bytes() >= input.memory_bytes());
    }
  }
}

TEST_CASE("the reference has heads that share keys, any lengths, masks, windows and what is done to scores") {
  for (const char* text : PROBLEMS) {
    const Problem problem = make_problem(parse_spec(text).value(), InputKind::normal, 3);
    const Reference::Answer &O = problem.reference["O"], &LSE = problem.reference["LSE"];
    int64_t rows = 0;
    for (int64_t unit = 0; unit < problem.shape.batch_heads(); ++unit) {
      rows += problem.shape.lens_q.count ? problem.shape.lens_q.of[unit / problem.shape.heads] : problem.shape.n;
    }
    INFO(text);
    REQUIRE(std::ssize(O.cells) == rows);
    for (size_t i = 0; i < O.cells.size(); ++i) {
      const auto [unit, query] = O.cells[i];
      INFO("unit " << unit << ", query " << query);
      const Row expected = plain_row(problem.shape, problem.inputs, unit, query);
      if (expected.lse == -INFINITE) {
        REQUIRE(LSE.values[i] == -INFINITE);
      } else {
        REQUIRE(LSE.values[i] == Approx(expected.lse).margin(1e-9));
      }
      for (int64_t c = 0; c < problem.shape.d; ++c) REQUIRE(O.row(i)[c] == Approx(expected.O[c]).margin(1e-9));
    }
  }
}

TEST_CASE("a tolerance follows the type that an output has") {
  const auto tolerance = [](const char* text) {
    return make_problem(parse_spec(text).value(), InputKind::normal, 1).reference.tolerance();
  };
  const double f16 = tolerance("n=128 d=64"), bf16 = tolerance("n=128 d=64 bf16"),
               mixed = tolerance("n=128 d=64 types=fp16,fp16,fp32");
  CHECK(bf16 > 5 * f16);  // 8 is the ratio of their steps
  CHECK(bf16 < 12 * f16);
  CHECK(mixed < f16);  // O is not rounded, the weights are
}

// ---- functions on the host in a kernel's place, which go by the strides ------------------------------------------------

namespace {

// Not the arguments themselves: g++ 12 clears what it takes for padding of a struct that is returned, and of one with an array of
// structs it clears numbers.
struct Params {
  std::shared_ptr<const Arguments> arguments = {};
};
void convert(const Arguments& arguments, Params& params) {
  params.arguments = std::make_shared<Arguments>(arguments);
}

enum class Fault { none, into_gap, from_gap, other_keys, behind_length, zero_for_none, by_strides_of_Q };
Fault fault;

// Tensors where the emulator has them, by element.
class View {
 public:
  View(const emulator::Device& device, const Arguments& arguments, const char* name, Element element,
       bool is_like_Q = false)
      : element_(element), tensor_(arguments.find(name)), strides_of_(is_like_Q ? arguments.find("Q") : tensor_) {
    for (const emulator::Device::Buffer& buffer : device.buffers()) {
      if (tensor_ && tensor_->data == buffer.begin) memory_ = const_cast<std::byte*>(buffer.memory);
    }
  }
  explicit operator bool() const { return memory_ != nullptr; }
  std::byte* at(int64_t sequence, int64_t head, int64_t row, int64_t column) const {
    const auto& [of_sequence, of_head, of_row] = strides_of_->strides;
    return memory_ + bytes_of(element_, sequence * of_sequence + head * of_head + row * of_row + column);
  }
  double get(int64_t sequence, int64_t head, int64_t row, int64_t column) const {
    return info(element_).to(at(sequence, head, row, column));
  }
  void set(int64_t sequence, int64_t head, int64_t row, int64_t column, double value) const {
    info(element_).from(value, at(sequence, head, row, column));
  }

 private:
  Element element_;
  const Arguments::Tensor *tensor_, *strides_of_;
  std::byte* memory_ = nullptr;
};

void attend(emulator::Device& device, const Params& params) {
  const Spec& spec = params.arguments->spec;
  const auto view = [&](const char* name, Element element) { return View(device, *params.arguments, name, element); };
  const View Q = view("Q", spec.q_type), K = view("K", spec.kv_type), V = view("V", spec.v_type()),
             O(device, *params.arguments, "O", spec.o_type, fault == Fault::by_strides_of_Q),
             LSE = view("LSE", Element::f32), cu_q = view("cu_seqlens_q", Element::i32),
             cu_k = view("cu_seqlens_k", Element::i32);
  for (int64_t b = 0; b < spec.batch; ++b) {
    const auto begin = [&](const View& cu, int64_t sequence) { return cu ? int64_t(cu.get(0, 0, 0, sequence)) : 0; };
    const int64_t q = begin(cu_q, b), k = begin(cu_k, b);  // where its rows begin
    const int64_t queries = cu_q ? begin(cu_q, b + 1) - q : spec.n, keys = cu_k ? begin(cu_k, b + 1) - k : spec.keys();
    for (int64_t h = 0; h < spec.heads; ++h) {
      const int64_t kh = (h * spec.key_heads() / spec.heads + (fault == Fault::other_keys ? 1 : 0)) % spec.key_heads();
      for (int64_t i = 0; i < queries + (fault == Fault::behind_length ? 1 : 0); ++i) {
        std::vector<double> weights(keys), sums(spec.d);
        double largest = -INFINITE, total = 0;
        const int64_t seen = spec.causal ? std::clamp<int64_t>(i + keys - queries + 1, 0, keys) : keys;
        for (int64_t j = 0; j < seen; ++j) {
          for (int64_t c = 0; c < spec.d; ++c) weights[j] += Q.get(b, h, q + i, c) * K.get(b, kh, k + j, c);
          if (fault == Fault::from_gap) weights[j] += K.get(b, kh, k + j, spec.d);
          largest = std::max(largest, weights[j] *= spec.scale());
        }
        for (int64_t j = 0; j < seen; ++j) {
          total += weights[j] = std::exp(weights[j] - largest);
          for (int64_t c = 0; c < spec.d; ++c) sums[c] += weights[j] * V.get(b, kh, k + j, c);
        }
        for (int64_t c = 0; c < spec.d; ++c) O.set(b, h, q + i, c, total > 0 ? sums[c] / total : 0);
        if (fault == Fault::into_gap) O.set(b, h, q + i, spec.d, 0);
        if (LSE) LSE.set(b, h, q + i, 0, total > 0 || fault != Fault::zero_for_none ? largest + std::log(total) : 0);
      }
    }
  }
}

std::vector<FailureKind> failures_of(const char* problem, Fault with) {
  fault = with;
  const Rung rung{.name = "99_fake", .idea = "", .limit = "", .prediction = ""};
  const Variant variant{.label = "on the host", .on_emulator = attend, .accepts = {}, .writes_lse = true};
  std::vector<FailureKind> kinds;
  const std::vector inputs{InputKind::normal, InputKind::one_hot};
  for (const CheckResult& result :
       check_sets_on_emulator(rung, variant, make_problem(parse_spec(problem).value(), inputs, 1))) {
    for (const Failure& failure : result.failures) {
      UNSCOPED_INFO(failure.message);
      kinds.push_back(failure.kind);
    }
  }
  return kinds;
}

}  // namespace

TEST_CASE("a right kernel is right by the strides of any layout, and rows without keys are 0") {
  for (const char* text :
       {"b=2 h=2 n=33 d=16", "b=2 h=2 n=33 d=16 layout=bnhd", "h=2 n=33 d=16 pad=8",
        "b=2 h=2 n=33 d=16 layout=bnhd pad=8", "b=2 h=4 kv=2 nq=5 nk=40 d=16 bf16 causal layout=bnhd",
        "h=2 nq=40 nk=5 d=16 causal pad=8", "b=2 h=2 nq=3 nk=0 d=16 pad=8",
        "b=2 h=2 n=24 d=16 causal lens_q=24,3 lens_k=0,20", "h=2 n=24 d=16 types=fp16,bf16,fp32 layout=bnhd"}) {
    INFO(text);
    CHECK(failures_of(text, Fault::none).empty());
  }
}

TEST_CASE("what a kernel must not touch or use is found in every layout") {
  const auto has = [](const std::vector<FailureKind>& kinds, FailureKind kind) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  for (const char* text : {"h=2 n=33 d=16 pad=8", "b=2 h=2 n=33 d=16 layout=bnhd pad=8"}) {
    INFO(text);
    CHECK(has(failures_of(text, Fault::into_gap), FailureKind::guard_overwritten));
    CHECK(has(failures_of(text, Fault::from_gap), FailureKind::wrong_result));
    CHECK(has(failures_of(text, Fault::by_strides_of_Q), FailureKind::unwritten_output));
  }
  CHECK(has(failures_of("h=4 kv=2 n=33 d=16", Fault::other_keys), FailureKind::wrong_result));
  CHECK(has(failures_of("b=2 h=2 n=24 d=16 lens_q=24,3 lens_k=24,20", Fault::behind_length),
            FailureKind::guard_overwritten));
  CHECK(failures_of("h=2 nq=40 nk=5 d=16 causal", Fault::zero_for_none) ==
        std::vector{FailureKind::wrong_lse, FailureKind::wrong_lse});
}
