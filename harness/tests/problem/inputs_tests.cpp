// The input sets are what their names say, the same on every machine.
#include "harness/problem/inputs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

constexpr Shape SHAPE{.batch = 1, .heads = 2, .n = 128, .d = 128};

double dot(std::span<const f16> a, int64_t row_a, std::span<const f16> b, int64_t row_b, int d) {
  double sum = 0;
  for (int c = 0; c < d; ++c) sum += double(to_float(a[row_a * d + c])) * to_float(b[row_b * d + c]);
  return sum;
}

double score(const Inputs& inputs, int head, int query, int key) {
  const int64_t first = int64_t{head} * SHAPE.n;
  return dot(inputs.half("Q"), first + query, inputs.half("K"), first + key, SHAPE.d) / std::sqrt(double(SHAPE.d));
}

int best_key(const Inputs& inputs, int head, int query) {
  int best = 0;
  for (int key = 1; key < SHAPE.n; ++key) {
    if (score(inputs, head, query, key) > score(inputs, head, query, best)) best = key;
  }
  return best;
}

}  // namespace

TEST_CASE("inputs depend on seed, kind and nothing else") {
  const Inputs once = make_inputs(InputKind::normal, SHAPE, 1), again = make_inputs(InputKind::normal, SHAPE, 1);
  const auto same = [](std::span<const f16> a, std::span<const f16> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](f16 x, f16 y) { return x.bits == y.bits; });
  };
  CHECK(same(once.half("Q"), again.half("Q")));
  CHECK(same(once.half("V"), again.half("V")));
  CHECK_FALSE(same(once.half("Q"), make_inputs(InputKind::normal, SHAPE, 2).half("Q")));
  CHECK_FALSE(same(once.half("Q"), once.half("K")));
  CHECK_FALSE(same(once.half("K"), once.half("V")));
  // The same on every machine: these bits are part of the contract, for recorded results carry only the seed.
  const std::vector<uint16_t> first{0x326a, 0x34cb, 0xbdb3, 0x360b, 0x3ab1, 0x3249, 0xc0c9, 0x26fd};
  for (size_t i = 0; i < first.size(); ++i) CHECK(once.half("Q")[i].bits == first[i]);
}

TEST_CASE("normal inputs have mean 0, variance 1 and normal tails") {
  const Shape shape{.batch = 2, .heads = 4, .n = 512, .d = 128};  // 524288 values
  const Inputs inputs = make_inputs(InputKind::normal, shape, 3);
  for (const Tensor& each : inputs) {
    const std::span<const f16> tensor = each.half();
    double sum = 0, squares = 0, beyond_two = 0;
    for (const f16 value : tensor) {
      const double x = to_float(value);
      sum += x;
      squares += x * x;
      beyond_two += std::abs(x) > 2;
    }
    const double count = double(tensor.size());
    CHECK(std::abs(sum / count) < 0.007);  // 5 standard errors
    CHECK(std::abs(squares / count - 1) < 0.01);
    CHECK(std::abs(beyond_two / count - 0.0455) < 0.0015);
  }
}

TEST_CASE("large logits overflow f32's exponential without a running maximum") {
  const Inputs inputs = make_inputs(InputKind::large_logits, SHAPE, 1);
  double largest = 0;
  for (int query = 0; query < SHAPE.n; ++query)
    largest = std::max(largest, score(inputs, 0, query, best_key(inputs, 0, query)));
  CHECK(largest > 100);    // exp overflows at 88.7
  CHECK(largest < 65504);  // but the scores themselves fit into f16
}

TEST_CASE("one_hot: every query meets one key, a different one for each") {
  const Inputs inputs = make_inputs(InputKind::one_hot, SHAPE, 1);
  std::set<int> met;
  for (int query = 0; query < SHAPE.n; ++query) {
    const int best = best_key(inputs, 1, query);
    met.insert(best);
    for (int key = 0; key < SHAPE.n; ++key) {
      if (key != best) REQUIRE(score(inputs, 1, query, best) - score(inputs, 1, query, key) > 10);
    }
  }
  CHECK(met.size() == size_t(SHAPE.n));
}

TEST_CASE("last_tile_max and first_tile_max: each row's maximum is where the name says") {
  const Inputs last = make_inputs(InputKind::last_tile_max, SHAPE, 1);
  const Inputs first = make_inputs(InputKind::first_tile_max, SHAPE, 1);
  for (int head = 0; head < 2; ++head) {
    for (int query = 0; query < SHAPE.n; ++query) {
      REQUIRE(best_key(last, head, query) >= SHAPE.n - 16);
      REQUIRE(best_key(first, head, query) < 16);
    }
  }
}

TEST_CASE("sinks: of nearly all queries key 0 scores highest, on average as far above the others as the name says") {
  for (const auto& [kind, height] :
       {std::pair(InputKind::sinks, 7.0), std::pair(InputKind::sinks14, 14.0), std::pair(InputKind::sinks35, 35.0)}) {
    const Inputs inputs = make_inputs(kind, SHAPE, 1);
    double above = 0;
    int met = 0;
    for (int query = 0; query < SHAPE.n; ++query) {
      double others = 0;
      for (int key = 1; key < SHAPE.n; ++key) others += score(inputs, 1, query, key) / (SHAPE.n - 1);
      above += (score(inputs, 1, query, 0) - others) / SHAPE.n;
      met += best_key(inputs, 1, query) == 0;
    }
    CHECK(std::abs(above - height) < 0.2 * height);  // 5 standard errors
    CHECK(met > SHAPE.n * 3 / 4);
  }
}

TEST_CASE("trained: nearly every query likes one of the nearest keys best") {
  const Shape shape{.batch = 1, .heads = 4, .n = 512, .d = 128, .causal = true};
  const Inputs inputs = make_inputs(InputKind::trained, shape, 1);
  for (int head = 0; head < shape.heads; ++head) {
    const int64_t first = int64_t{head} * shape.n;
    const auto like = [&](int query, int key) {
      return dot(inputs.half("Q"), first + query, inputs.half("K"), first + key, shape.d);
    };
    int near = 0;
    for (int query = shape.n / 2; query < shape.n; ++query) {
      int best = 0;
      for (int key = 1; key <= query; ++key) best = like(query, key) > like(query, best) ? key : best;
      near += query - best < 128;
    }
    CHECK(near > shape.n / 2 * 7 / 8);
  }
}

TEST_CASE("negative_rows: no score's exponential is a normal f32") {
  const Inputs inputs = make_inputs(InputKind::negative_rows, SHAPE, 1);
  for (int query = 0; query < SHAPE.n; ++query) {
    REQUIRE(std::exp(float(score(inputs, 0, query, best_key(inputs, 0, query)))) < std::numeric_limits<float>::min());
  }
}

TEST_CASE("ties and constant_v: equal keys, equal values") {
  const Inputs ties = make_inputs(InputKind::ties, SHAPE, 1), constant = make_inputs(InputKind::constant_v, SHAPE, 1);
  for (int head = 0; head < 2; ++head) {
    for (int64_t i = 0; i < int64_t{SHAPE.n} * SHAPE.d; ++i) {
      const int64_t at = int64_t{head} * SHAPE.n * SHAPE.d;
      REQUIRE(ties.half("K")[at + i].bits == ties.half("K")[at + i % SHAPE.d].bits);
      REQUIRE(constant.half("V")[at + i].bits == constant.half("V")[at + i % SHAPE.d].bits);
    }
  }
}

TEST_CASE("nan_key: one number of a head's keys is NaN; nan_queries: rows that alone meet a giant stand among NaN") {
  const auto is_nan = [](f16 value) { return std::isnan(to_float(value)); };
  const Inputs key = make_inputs(InputKind::nan_key, SHAPE, 1);
  CHECK(std::ranges::count_if(key.half("K"), is_nan) == SHAPE.batch_heads());
  for (const char* name : {"Q", "V"}) CHECK(std::ranges::none_of(key.half(name), is_nan));

  const Inputs queries = make_inputs(InputKind::nan_queries, SHAPE, 1),
               giant = make_inputs(InputKind::giant_keys, SHAPE, 1);
  for (const char* name : {"K", "V"}) CHECK(std::ranges::none_of(queries.half(name), is_nan));
  for (int head = 0; head < SHAPE.heads; ++head) {
    for (int block = 0; block < SHAPE.n / 32; ++block) {
      int numbers = 0, beside_nan = 0;
      for (int row = block * 32; row < block * 32 + 32; ++row) {
        const auto row_of = [&](const Inputs& inputs, int query) {
          return inputs.half("Q").subspan(static_cast<size_t>(head * SHAPE.n + query) * SHAPE.d, SHAPE.d);
        };
        if (std::ranges::any_of(row_of(queries, row), is_nan)) continue;
        ++numbers;
        REQUIRE(std::ranges::equal(row_of(queries, row), row_of(giant, row), {}, &f16::bits, &f16::bits));
        beside_nan += std::ranges::any_of(row_of(queries, row ^ 8), is_nan);  // the other row of a lane's fragment
      }
      CHECK(numbers == (block % 2 == 0 ? 32 : 2));
      CHECK(beside_nan == (block % 2 == 0 ? 0 : 2));
    }
  }
}

TEST_CASE("every kind has a name of its own") {
  std::set<std::string_view> names;
  for (const InputKind kind : all_input_kinds()) names.insert(to_string(kind));
  CHECK(names.size() == all_input_kinds().size());
}

TEST_CASE("a head for each kind: every head is what a problem of its kind is, and differs from the others") {
  const Shape shape{.batch = 2, .heads = 2, .n = 48, .d = 64};
  const std::vector kinds{InputKind::normal, InputKind::ties};
  const Inputs inputs = make_inputs(kinds, shape, 1);
  REQUIRE(inputs.half("K").size() == size_t(shape.elements()));
  const auto row = [&](int head, int key) {
    return std::span(inputs.half("K")).subspan(static_cast<size_t>((head * shape.n + key) * shape.d), shape.d);
  };
  for (int head = 0; head < 4; ++head) {
    const bool equal_keys = std::ranges::equal(row(head, 0), row(head, 5), {}, &f16::bits, &f16::bits);
    CHECK(equal_keys == (head % 2 == 1));
  }
  CHECK_FALSE(std::ranges::equal(row(0, 0), row(2, 0), {}, &f16::bits, &f16::bits));
}

TEST_CASE("creeping_max and giant_keys: maxima rise within the row, in some rows of a warp and not in others") {
  const auto rises = [](InputKind kind, int query) {  // how often, from one 16 keys to the next
    static std::map<InputKind, Inputs> made;
    if (!made.contains(kind)) made[kind] = make_inputs(kind, SHAPE, 1);
    int count = 0;
    double best = -1e300;
    for (int first = 0; first < SHAPE.n; first += 16) {
      double here = -1e300;
      for (int key = first; key < first + 16; ++key) here = std::max(here, score(made[kind], 0, query, key));
      count += first > 0 && here > best + 1;
      best = std::max(best, here);
    }
    return count;
  };
  for (const InputKind kind : {InputKind::creeping_max, InputKind::giant_keys}) {
    std::set<int> counts;
    for (int query = 0; query < 32; ++query) counts.insert(rises(kind, query));
    INFO(to_string(kind));
    CHECK(counts.size() > 2);
    CHECK(counts.contains(0));
  }
}

TEST_CASE("edge_weights, balanced and cancelling: small weights that matter, and sums near zero") {
  const auto weight = [](const Inputs& inputs, int query, int key, int top) {
    return std::exp(score(inputs, 0, query, key) - score(inputs, 0, query, top));
  };
  const Inputs edge = make_inputs(InputKind::edge_weights, SHAPE, 1);
  double least = 1, most = 0;
  for (int query = 0; query < SHAPE.n; ++query) {
    const double w = weight(edge, query, 3, SHAPE.n / 3);
    least = std::min(least, w);
    most = std::max(most, w);
  }
  CHECK(least < 0x1p-22);
  CHECK(most > 0x1p-12);
  CHECK(most < 0x1p-8);
  const Inputs balanced = make_inputs(InputKind::balanced, SHAPE, 1);
  double others = 0;
  for (int key = 0; key < SHAPE.n; ++key)
    others += key == SHAPE.n * 5 / 8 ? 0 : weight(balanced, 5, key, SHAPE.n * 5 / 8);
  CHECK(others == Approx(1).margin(0.3));
  const Inputs cancelling = make_inputs(InputKind::cancelling, SHAPE, 1);
  for (int i = 0; i < 64 * SHAPE.d; i += 7) {
    REQUIRE(to_float(cancelling.half("V")[i + 64 * SHAPE.d]) == -to_float(cancelling.half("V")[i]));
  }
}

TEST_CASE(
    "near_ties and rising_weights: both halves of the keys weigh the same for V, and maxima move from key to key") {
  for (const InputKind kind : {InputKind::near_ties, InputKind::rising_weights}) {
    INFO(to_string(kind));
    const Inputs inputs = make_inputs(kind, SHAPE, 1);
    for (const int query : {3, 64, 100}) {
      double halves[2] = {}, sum = 0;
      const double first = score(inputs, 0, query, 0), last = score(inputs, 0, query, SHAPE.n - 1);
      if (kind == InputKind::near_ties) {
        CHECK(std::fabs(last - first) < 0.7);
      } else {
        for (const double end : {first, last}) CHECK(score(inputs, 0, query, SHAPE.n / 2 - 1) - end > 11 * 0.6931);
      }
      for (int key = 0; key < SHAPE.n; ++key) {
        const double weight = std::exp(score(inputs, 0, query, key) - last);
        halves[2 * key / SHAPE.n] += weight * to_float(inputs.half("V")[key * SHAPE.d + 7]);
        sum += weight;
      }
      CHECK(halves[0] > 0);
      CHECK(halves[1] < 0);
      CHECK(std::fabs(halves[0] + halves[1]) < 0.35 * halves[0]);
      CHECK(halves[0] / sum > 0.3);
    }
  }
}

TEST_CASE("wide_values and deep_scores: the ends of f16, in V and in the scores") {
  const Inputs wide = make_inputs(InputKind::wide_values, SHAPE, 1);
  float largest = 0, smallest = INFINITY;
  for (const f16 value : wide.half("V")) {
    largest = std::max(largest, std::fabs(to_float(value)));
    smallest = std::min(smallest, std::fabs(to_float(value)));
  }
  CHECK(largest > 63000);
  CHECK(largest < 65000);  // a weight that is rounded up makes no infinity of it
  CHECK(smallest < 2);
  const Inputs deep = make_inputs(InputKind::deep_scores, SHAPE, 1);
  double highest = -1e300, deepest = 0;
  for (int key = 0; key < SHAPE.n; ++key) {
    highest = std::max(highest, score(deep, 0, 2, key));
    deepest = std::min(deepest, score(deep, 0, 2, key));
  }
  CHECK(highest < -1e4);
  CHECK(deepest == Approx(-524288).epsilon(1e-3));
  for (int key = 0; key < SHAPE.n; ++key) {
    CHECK(score(deep, 0, 3, key) < -1e6);
    CHECK(deep.half("V")[size_t(key) * SHAPE.d].bits == deep.half("V")[size_t(key % 4 == 1 ? 1 : 0) * SHAPE.d].bits);
  }
}

TEST_CASE("one_sign: maxima move as in creeping_max but below 0, and V has one sign and nearly one size") {
  const Inputs inputs = make_inputs(InputKind::one_sign, SHAPE, 1),
               creeping = make_inputs(InputKind::creeping_max, SHAPE, 1);
  CHECK(std::ranges::equal(inputs["Q"].bytes(), creeping["Q"].bytes()));
  const auto of_column_0 = [](const Inputs& of, int row) { return of["K"][size_t(row) * SHAPE.d]; };
  const float below = of_column_0(creeping, 0) - of_column_0(inputs, 0);
  for (int key = 0; key < SHAPE.n; ++key) {
    CHECK(of_column_0(inputs, key) < 0);
    CHECK(of_column_0(inputs, key) + below == of_column_0(creeping, key));
  }
  for (const f16 value : inputs.half("V")) CHECK(std::fabs(to_float(value) / 1024 - 1.8f) < 0.19f);
}
