#include "harness/problem/inputs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "harness/base/parallel.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/lists.hpp"
#include "harness/problem/normals.hpp"
#include "harness/problem/reference.hpp"
#include "harness/problem/trained.hpp"
#include "harness/stages/intervals.hpp"

namespace ladder {
namespace {

// In the order of InputKind.
constexpr std::array<std::string_view, static_cast<size_t>(InputKind::nan_unseen) + 1> NAMES = {
    "normal",         "large_logits",  "peaky",       "one_hot",    "constant_v",     "last_tile_max",
    "first_tile_max", "negative_rows", "nan_head",    "ties",       "creeping_max",   "giant_keys",
    "edge_weights",   "balanced",      "cancelling",  "not_finite", "nan_key",        "sinks",
    "sinks14",        "sinks35",       "trained",     "near_ties",  "rising_weights", "wide_values",
    "one_sign",       "deep_scores",   "nan_queries", "huge_keys",  "nan_unseen"};
static_assert(!NAMES.back().empty());

// Numbers that a type has, one for each element of a tensor.
struct Numbers {
  Element type;
  std::vector<float> of;
  float operator[](int64_t i) const { return of[static_cast<size_t>(i)]; }
  void set(int64_t i, float value) { of[static_cast<size_t>(i)] = static_cast<float>(rounded(type, value)); }
};
struct QKV {
  Numbers Q, K, V;
};

// The largest power of two, up to `most`, by which numbers of that size stay numbers of the type.
float fitting(Element type, float size, float most = 1) {
  return std::min(most, static_cast<float>(std::exp2(std::floor(std::log2(info(type).largest / size)))));
}

constexpr int FAVOURED_KEYS = 16;  // the keys that hold each row's maximum: within the last (first) tile of any rung

enum Stream : uint64_t { TENSOR_Q = 1, TENSOR_K, TENSOR_V };

// Whose element (row, column) of N(0, 1) is passed through `shape_value(value, row, column)`, where row counts through all heads.
template <class ShapeValue>
void draw(Numbers& numbers, Stream tensor, uint64_t seed, const Shape& shape, const ShapeValue& shape_value) {
  numbers.of.resize(shape.elements());
  const uint64_t stream = hash(seed * 4 + tensor);
  const int d = shape.d, pairs = (d + 1) / 2;
  parallel_for(shape.batch_heads() * shape.n, 256, [&](int64_t begin, int64_t end) {
    std::vector<float> drawn(2 * pairs);
    for (int64_t row = begin; row < end; ++row) {
      draw_normals(stream, row * pairs, drawn);
      for (int column = 0; column < d; ++column) drawn[column] = shape_value(drawn[column], row, column);
      info(numbers.type).round(drawn);
      std::copy_n(drawn.begin(), d, &numbers.of[row * d]);
    }
  });
}

using OfRow = std::function<float(int64_t row)>;  // within its head

// Copies `from`'s element (key(row), column) of the same head, times scale(row), into every row.
void copy_rows(Numbers& to, const Numbers& from, const Shape& shape, const OfRow& scale,
               const std::function<int64_t(int64_t row)>& key) {
  const std::vector<float> values = from.of;
  to.of.resize(values.size());
  for (int64_t row = 0; row < shape.batch_heads() * shape.n; ++row) {
    const int64_t source = row / shape.n * shape.n + key(row % shape.n);
    const float factor = scale(row % shape.n);
    for (int c = 0; c < shape.d; ++c) to.of[row * shape.d + c] = factor * values[source * shape.d + c];
  }
  info(to.type).round(to.of);
}

// Writes value(row within its head) into a column of every row. A column of Q times one of K is a term of the scores.
void set_column(Numbers& tensor, const Shape& shape, int column, const OfRow& value) {
  if (column >= shape.d) return;
  std::vector<float> values(shape.n);
  for (int64_t row = 0; row < shape.n; ++row) values[row] = value(row);
  info(tensor.type).round(values);
  for (int64_t row = 0; row < shape.batch_heads() * shape.n; ++row)
    tensor.of[row * shape.d + column] = values[row % shape.n];
}

// In [0, 1), from a row and a seed.
float uniform(uint64_t seed, int64_t row, uint64_t which) {
  return static_cast<float>(hash(hash(seed * 16 + which) ^ static_cast<uint64_t>(row)) >> 40) * 0x1p-24f;
}

constexpr float LN2 = 0.69314718f;
constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();
constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Half of the rows rise (some fall) by 0.5 to 40 powers of two over all keys, the others by up to 4 every 16 keys: from 0 on, or
// up to 0.
void make_creeping_max(QKV& inputs, const Shape& shape, uint64_t seed, bool up_to_0) {
  constexpr int STEP = 16;
  const int64_t first = up_to_0 ? shape.n / STEP + 1 : 0;
  set_column(inputs.K, shape, 0, [&](int64_t key) { return static_cast<float>(key / STEP - first); });
  set_column(inputs.Q, shape, 0, [&](int64_t row) {
    const float u = uniform(seed, row, 0), over_all = (0.5f + 39.5f * u) * STEP / static_cast<float>(shape.n);
    const float powers = uniform(seed, row, 1) < 0.5f ? over_all : 4 * u;
    return (uniform(seed, row, 2) < 0.125f ? -1 : 1) * powers * LN2 / shape.scale();
  });
}

// Scores that rise by `growth(row)` over all keys, in steps of 16, or over one half of them, and fall over the other.
void make_rising(QKV& inputs, const Shape& shape, const OfRow& growth, bool and_falling = false) {
  constexpr int STEP = 16;
  set_column(inputs.K, shape, 0, [&](int64_t key) {
    return static_cast<float>((and_falling ? 2 * std::min<int64_t>(key, shape.n - 1 - key) : key) / STEP);
  });
  set_column(inputs.Q, shape, 0,
             [&](int64_t row) { return growth(row) * STEP / (static_cast<float>(shape.n) * shape.scale()); });
}

// Every fourth score is higher by 30 to 90 than the others, which are equal, but for one, the deepest. They are exact:
// whole numbers that f32 holds, before the scale. V is the same in all of those keys, and another one in the others: so the
// answer is exact, however deep a score lies and whatever the last bits of its exponential are.
void make_deep_scores(QKV& inputs, const Shape& shape) {
  const float scale = shape.scale(), depth = std::exp2(std::ceil(std::log2(12000 / scale) / 2));  // squared
  const int64_t deepest = shape.causal ? 0 : shape.n > 1 ? shape.n / 3 : -1;  // under a mask query 0 sees no other
  constexpr float DEEPER = 60;
  set_column(inputs.Q, shape, 0, [&](int64_t row) { return row % 2 == 0 ? depth : DEEPER * depth; });
  set_column(inputs.K, shape, 0, [&](int64_t key) {
    return key == deepest ? std::max(-524288 / (depth * scale), -static_cast<float>(info(inputs.K.type).largest))
                          : -depth;
  });
  set_column(inputs.Q, shape, 1,
             [&](int64_t row) { return std::round(static_cast<float>(30 + row % 3 * 30) / scale); });
  set_column(inputs.K, shape, 1, [](int64_t key) { return key % 4 == 1 ? 1.0f : 0.0f; });
  for (int column = 0; column < shape.d; ++column) {
    const float value = 1 + static_cast<float>(column % 8) / 8;
    set_column(inputs.V, shape, column, [&](int64_t key) { return key % 4 == 1 ? value : -2 * value; });
  }
}

// Rows in blocks of 32, as many as a warp may own. In every other block rows meet three keys that all of them share, one of
// their own, or a key of zeros, above all others; in the others two rows alone do, in two different tiles, and the rest of
// the warp must not hide it: those rows are calm, or NaN.
void make_giant_keys(QKV& inputs, const Shape& shape, uint64_t seed, bool others_are_nan = false) {
  const int64_t n = shape.n, d = shape.d;
  const auto chosen = [&](int64_t row, uint64_t which, const auto& heights) {  // above the other scores
    return heights[static_cast<size_t>(uniform(seed, row, which) * static_cast<float>(std::size(heights)))];
  };
  const int64_t giants[] = {std::min<int64_t>(5, n - 1), n / 2, std::max<int64_t>(n - 2, 0)};
  constexpr int MIDDLE = 1, FINE = 3;  // columns of the giant in the middle: its own, and one for what f16 leaves over
  // As long as a tile can be of which there are three. Shorter ones divide it.
  const auto tile = static_cast<int64_t>(std::max<uint64_t>(32, std::bit_floor(static_cast<uint64_t>(n) / 3)));
  const auto is_mixed = [](int64_t query) { return query / 32 % 2 == 0; };
  for (int which = 0; which < 3; ++which) {
    set_column(inputs.K, shape, which, [&](int64_t key) { return key == giants[which] ? 1.0f : 0.0f; });
    set_column(inputs.Q, shape, which, [&](int64_t query) {
      constexpr float HEIGHTS[] = {0.0f, 0.0f, 2.0f, 5.5f, 9.0f, 30.0f, 88.0f, 300.0f};
      return is_mixed(query) && query % 2 == 0 ? chosen(query, which, HEIGHTS) / shape.scale() : 0.0f;
    });
  }
  set_column(inputs.K, shape, FINE, [&](int64_t key) { return key == giants[MIDDLE] ? 1.0f : 0.0f; });
  // A key of zeros: the first of all scores, and the largest, is 0 where those of all others are negative.
  constexpr int BELOW = 4;
  for (int64_t head = 0; head < shape.batch_heads(); ++head) std::fill_n(&inputs.K.of[head * n * d], d, 0.0f);
  set_column(inputs.K, shape, BELOW, [](int64_t key) { return key == 0 ? 0.0f : -1.0f; });
  const auto meet = [&](int64_t head, int64_t query, int64_t key, float height) {
    const int64_t Q_row = (head * n + query) * d, K_row = (head * n + key) * d;
    float square = 0;
    for (int64_t c = 0; c < d; ++c) square += std::pow(inputs.K[K_row + c], 2.0f);
    const float factor = height / (shape.scale() * std::max(square, 1.0f));
    for (int64_t c = 0; c < d; ++c) inputs.Q.set(Q_row + c, factor * inputs.K[K_row + c]);
  };
  for (int64_t head = 0; head < shape.batch_heads(); ++head) {
    for (int64_t query = 0; query < n; ++query) {
      constexpr float HEIGHTS[] = {6.0f, 7.0f, 7.5f, 8.0f, 9.0f, 12.0f, 20.0f, 40.0f};
      if (!is_mixed(query) || query % 2 == 0) continue;
      if (query % 8 == 5 && d > BELOW) {
        const int64_t Q_row = (head * n + query) * d;
        std::fill_n(&inputs.Q.of[Q_row], d, 0.0f);
        inputs.Q.set(Q_row + BELOW, std::round(5 / shape.scale()));
        continue;
      }
      meet(head, query, static_cast<int64_t>(uniform(seed, query, 3) * static_cast<float>(n)),
           chosen(query, 4, HEIGHTS));
    }
    for (int64_t block = 1; block * 32 < n; block += 2) {
      const auto row_of = [&](int64_t event) { return block * 32 + (event * 7 + 3) % 32; };
      for (int64_t query = block * 32; query < std::min(n, block * 32 + 32) && others_are_nan; ++query) {
        if (query != row_of(block) && query != row_of(block + 1)) inputs.Q.set((head * n + query) * d, NOT_A_NUMBER);
      }
      for (int64_t i = 0; i < 2; ++i) {
        // Rows of both halves of a fragment; a key at the end of a tile, at its start, or between.
        const int64_t event = block + i, query = row_of(event);
        const int64_t columns[] = {tile - 1 - event % 8, event % 8, 8 + event * 13 % (tile - 16)};
        const int64_t key = ((i == 0 ? tile : (n / tile - 1) * tile) + columns[(block / 2 + i) % 3]) % n;
        constexpr float HEIGHTS[] = {20.0f, 40.0f};
        if (query >= n) continue;
        if (i == 1 || block / 2 % 2 == 0) {
          meet(head, query, key, chosen(query, 4, HEIGHTS));
        } else if (d > FINE) {  // where weights leave f16: 2^15.9998 is 65527, and from 65520 on infinity is nearer
          const float height = 15.9998f * LN2 / shape.scale(), rough = std::floor(height);
          const int64_t Q_row = (head * n + query) * d;
          std::fill_n(&inputs.Q.of[Q_row], d, 0.0f);
          inputs.Q.set(Q_row + MIDDLE, rough);
          inputs.Q.set(Q_row + FINE, height - rough);
        }
      }
    }
  }
}

// One key stands above the others by height(row).
void raise_one_key(QKV& inputs, const Shape& shape, int64_t raised, const OfRow& height) {
  set_column(inputs.K, shape, 0, [&](int64_t key) { return key == raised ? 0.0f : -1.0f; });
  set_column(inputs.Q, shape, 0, [&](int64_t row) { return height(row) / shape.scale(); });
}

constexpr float LEAN = 2;  // how far the queries of `sinks` lean towards one direction, (1, ..., 1)

// Key 0 lies along that direction, so long that its score is `height` on average. Queries differ along it by 1, and
// that score by height / LEAN: few dislike the key.
void make_sinks(QKV& inputs, const Shape& shape, float height) {
  const float along = height / (LEAN * shape.scale() * std::sqrt(static_cast<float>(shape.d)));  // of each column
  for (int64_t head = 0; head < shape.batch_heads(); ++head) {
    for (int64_t c = 0; c < shape.d; ++c) inputs.K.set(head * shape.n * shape.d + c, along);
  }
}

// Queries and keys of a trained model's heads; of fewer columns the first ones.
void make_trained(QKV& inputs, const Shape& shape) {
  const int64_t d = std::min<int64_t>(shape.d, TRAINED_COLUMNS);
  parallel_for(shape.batch_heads() * shape.n, 256, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (Numbers* const tensor : {&inputs.Q, &inputs.K}) {
        std::array<float, TRAINED_COLUMNS> values{};
        for (int64_t c = 0; c < d; ++c) values[c] = (*tensor)[row * shape.d + c];
        make_trained_row(row / shape.n, tensor == &inputs.K, row % shape.n, values);
        for (int64_t c = 0; c < d; ++c) tensor->set(row * shape.d + c, values[c]);
      }
    }
  });
}

// The second half's keys are those of the first, 1/128 longer, and its values are theirs with the other sign.
void make_cancelling(QKV& inputs, const Shape& shape) {
  const int64_t half = shape.n / 2, d = shape.d;
  for (int64_t head = 0; head < shape.batch_heads(); ++head) {
    for (int64_t i = head * shape.n * d; i < (head * shape.n + half) * d; ++i) {
      inputs.K.set(i + half * d, inputs.K[i] * (1 + 0x1p-7f));
      inputs.V.set(i + half * d, -inputs.V[i]);
    }
  }
}

// A NaN and an infinity in two rows of Q; a NaN and an infinity of either sign in one value of V each; and a key that lies
// infinitely far below all others. Under a causal mask these are values of key 0, which all queries see, and there is no
// such key; nor in a row so short that some part of a kernel might have no other.
void make_not_finite(QKV& inputs, const Shape& shape) {
  const int64_t n = shape.n, d = shape.d;
  const bool is_window = shape.left >= 0 || shape.right >= 0 || shape.has_listed_keys();
  if (!shape.causal && !is_window && d > 1 && n >= 64) {
    set_column(inputs.Q, shape, 0, [](int64_t) { return 1.0f; });
    set_column(inputs.K, shape, 0, [&](int64_t key) { return key == n / 4 ? -INFINITE : 0.0f; });
  }
  for (int64_t head = 0; head < shape.batch_heads(); ++head) {
    const int64_t first = head * n;
    inputs.Q.set((first + n / 3) * d + d - 1, NOT_A_NUMBER);
    inputs.Q.set((first + n * 2 / 3) * d + d - 1, INFINITE);
    if (is_window) continue;  // there is no key that all queries see
    inputs.V.set((first + (shape.causal ? 0 : n / 2)) * d + d / 2, NOT_A_NUMBER);
    inputs.V.set((first + (shape.causal ? 0 : n - 1)) * d + d / 4, INFINITE);
    inputs.V.set((first + (shape.causal ? 0 : n / 3)) * d + d * 3 / 4, -INFINITE);
  }
}

// No answer but NaN, or under a causal mask none from that key on.
void make_nan_key(QKV& inputs, const Shape& shape) {
  for (int64_t head = 0; head < shape.batch_heads(); ++head) {
    const int64_t key = head * shape.n + shape.n * 5 / 8;
    inputs.K.set(key * shape.d + shape.d / 3, NOT_A_NUMBER);
  }
}

// What a tensor's N(0, 1) are multiplied by, and what is added to that.
struct Draw {
  float factor = 1, shift = 0;
};
struct Draws {
  Draw Q = {}, K = {};
};

constexpr float SMALL_KEY = 0x1p-8f, HUGE_KEY = 0x1p13f;  // times N(0, 1), which f16 has

// Of each head the key in the middle and the last one: whoever sees both, and likes them, gives them half of its weight each.
void make_huge_keys(QKV& inputs, const Shape& shape) {
  const float huge = HUGE_KEY * fitting(inputs.K.type, 7 * HUGE_KEY);
  for (int64_t head = 0; head < shape.batch_heads(); ++head) {
    const int64_t middle = (head * shape.n + shape.n / 2) * shape.d, last = ((head + 1) * shape.n - 1) * shape.d;
    for (int64_t column = 0; column < shape.d; ++column) {
      inputs.K.set(middle + column, inputs.K[middle + column] * (huge / SMALL_KEY));
      inputs.K.set(last + column, inputs.K[middle + column]);
    }
  }
}

float height_of_sink(InputKind kind) {
  using enum InputKind;
  return kind == sinks ? 7 : kind == sinks14 ? 14 : kind == sinks35 ? 35 : 0;
}

// What Q and K begin with.
Draws draws_of(InputKind kind, const Shape& shape) {
  using enum InputKind;
  const float root = std::sqrt(static_cast<float>(shape.d));
  // Scores of this deviation, whatever the scale, and what follows on top.
  const auto scores_of = [&](float deviation) { return Draws{{.factor = deviation / (shape.scale() * root)}}; };
  if (kind == large_logits) return {{.factor = 8}, {.factor = 8}};
  if (kind == huge_keys) return {{}, {.factor = SMALL_KEY}};
  if (kind == peaky) return {{.factor = 16}, {.factor = 16}};
  // Queries lean towards (1, ..., 1), and so do a few keys: their scores are about 0.75 * sqrt(d) higher, 8.5 at
  // d = 128. Enough to hold the maximum, little enough for the other keys to matter in the sum.
  if (kind == last_tile_max || kind == first_tile_max) return {{.shift = 1}};
  if (height_of_sink(kind) > 0) return {{.shift = LEAN / root}};
  // Scores of about -12 sqrt(d), -139 at d = 128: exp underflows in f32 unless the maximum is subtracted.
  if (kind == negative_rows) return {{.shift = 3.5f}, {.shift = -3.5f}};
  if (kind == deep_scores) return {{.factor = 0}, {.factor = 0}};
  if (kind == not_finite) return scores_of(1);
  if (kind == cancelling) return scores_of(0.5f);
  if (kind == near_ties || kind == rising_weights) return scores_of(1.0f / 64);
  constexpr InputKind QUIET[] = {creeping_max, one_sign, giant_keys, nan_queries, edge_weights, balanced};
  return std::ranges::find(QUIET, kind) != std::end(QUIET) ? scores_of(0.25f) : Draws{};
}

// Q, K and V of one kind, [batch * heads, n, d] each, of numbers that their types have.
QKV make_qkv(InputKind kind, const Shape& shape, uint64_t seed) {
  using enum InputKind;
  const int64_t n = shape.n;
  QKV inputs{{shape.q_type, {}}, {shape.kv_type, {}}, {shape.kv_type, {}}};
  if (kind == nan_head) {
    for (Numbers* const each : {&inputs.Q, &inputs.K, &inputs.V}) each->of.assign(shape.elements(), NOT_A_NUMBER);
    return inputs;
  }
  const auto draw_as = [&](Numbers& numbers, Stream tensor, const Draw& as) {
    draw(numbers, tensor, seed, shape, [as](float value, int64_t, int) { return as.factor * value + as.shift; });
  };
  const Draws draws = draws_of(kind, shape);
  draw_as(inputs.K, TENSOR_K, draws.K);
  draw_as(inputs.V, TENSOR_V, {});
  if (kind == one_hot || kind == wide_values) {
    // Query i is a multiple of key (7 i + 3) mod n: |k|^2 is about d, so with this factor the softmax sees about 45,
    // against a deviation of about 45 / sqrt(d) for the other keys. Or 75, in every second row beside wide values: a weight
    // of 2^108, before a kernel looks for a maximum, times values near the end of bf16 leaves f32.
    const auto factor = [&](int64_t i) {
      return (kind == wide_values && i % 2 == 1 ? 75.0f : 45.0f) / std::sqrt(static_cast<float>(shape.d));
    };
    copy_rows(inputs.Q, inputs.K, shape, factor, [n](int64_t i) { return (7 * i + 3) % n; });
  } else {
    draw_as(inputs.Q, TENSOR_Q, draws.Q);
  }
  if (kind == last_tile_max || kind == first_tile_max) {
    const int64_t first = kind == last_tile_max ? n - FAVOURED_KEYS : 0;
    draw(inputs.K, TENSOR_K, seed, shape, [=](float value, int64_t row, int) {
      return first <= row % n && row % n < first + FAVOURED_KEYS ? value + 0.75f : value;
    });
  }
  const auto first_row = [](int64_t) { return 0; };
  const auto as_it_is = [](int64_t) { return 1.0f; };
  if (kind == constant_v) copy_rows(inputs.V, inputs.V, shape, as_it_is, first_row);
  if (kind == ties) copy_rows(inputs.K, inputs.K, shape, as_it_is, first_row);
  if (kind == creeping_max || kind == one_sign) make_creeping_max(inputs, shape, seed, kind == one_sign);
  if (kind == giant_keys || kind == nan_queries) make_giant_keys(inputs, shape, seed, kind == nan_queries);
  if (const float height = height_of_sink(kind); height > 0) make_sinks(inputs, shape, height);
  if (kind == trained) make_trained(inputs, shape);
  if (kind == nan_key) make_nan_key(inputs, shape);
  if (kind == huge_keys) make_huge_keys(inputs, shape);
  if (kind == cancelling) make_cancelling(inputs, shape);
  if (kind == not_finite) make_not_finite(inputs, shape);
  if (kind == deep_scores) make_deep_scores(inputs, shape);
  // V from what N(0, 1) draws for a key's column.
  const auto make_V = [&](const auto& value_of) {
    draw(inputs.V, TENSOR_V, seed, shape,
         [&](float drawn, int64_t row, int column) { return value_of(drawn, row % n, column); });
  };
  // Both halves of the keys weigh the same, or nearly so, and their values cancel: an error of either half shows.
  if (kind == near_ties) {
    make_rising(inputs, shape,
                [&](int64_t row) { return (uniform(seed, row, 1) < 0.125f ? -0.5f : 0.5f) * uniform(seed, row, 0); });
    make_V([n](float drawn, int64_t key, int) { return (key < n / 2 ? 1.0f : -1.0f) * (1 + drawn / 16); });
  }
  if (kind == one_sign) {
    const float size = 1024 * fitting(inputs.V.type, 2100);
    make_V([size](float drawn, int64_t, int) { return size * (1.8f + drawn / 32); });
  }
  if (kind == rising_weights) {
    // So that the first weights, which are the smallest, are no subnormals, of f16 or of e4m3.
    const float powers = inputs.Q.type == Element::e4m3 ? 6 : 13;
    make_rising(
        inputs, shape, [&](int64_t row) { return powers * LN2 * (0.98f + 0.04f * uniform(seed, row, 0)); }, true);
    const float size = fitting(inputs.V.type, 12000);
    make_V([n, size, powers](float drawn, int64_t key, int) {
      const float from_end = static_cast<float>(2 * std::min(key, n - 1 - key)) / static_cast<float>(n);
      return (2 * key < n ? size : -size) * std::exp2(powers * (1 - from_end)) * (1 + drawn / 16);
    });
  }
  if (kind == wide_values) {
    // Not quite to the end: a weight may be rounded up, and 65504 (1 + 2^-12) is infinity. Those of bf16 are further apart.
    const float size = fitting(inputs.V.type, 64000, 0x1p30f);
    draw(inputs.V, TENSOR_V, seed, shape, [&](float value, int64_t row, int column) {
      const float u = uniform(seed, row * shape.d + column, 0);
      return size * std::copysign(u < 0.25f ? 64000 - 4000 * u : std::exp2(21.2f * (u - 0.25f)), value);
    });
  }
  if (kind == edge_weights) {
    raise_one_key(inputs, shape, n / 3, [&](int64_t row) { return (10 + 14 * uniform(seed, row, 0)) * LN2; });
    make_V([n](float drawn, int64_t key, int) { return key == n / 3 ? 0.0f : 4 + drawn / 2; });
  }
  if (kind == balanced) {
    const float others = std::log(static_cast<float>(std::max<int64_t>(n - 1, 1)));
    raise_one_key(inputs, shape, n * 5 / 8, [&](int64_t row) { return others * (1 + uniform(seed, row, 0) / 64); });
    make_V([n](float, int64_t key, int column) {
      const float value = 1 + static_cast<float>(column % 64) / 64;
      return (key == n * 5 / 8) == (column % 2 == 0) ? value : -value;
    });
  }
  return inputs;
}

// NaN in each row of K or V that no query of its sequence sees.
void forget_unseen(Tensor& tensor, const Spec& spec) {
  for (int64_t unit = 0; unit < tensor.spec().units(); ++unit) {
    for (int64_t key = 0; key < spec.keys(); ++key) {
      if (!runs_of_queries(spec, unit / spec.key_heads(), key).empty()) continue;
      for (int64_t i = tensor.spec().index(unit, key); i < tensor.spec().index(unit, key + 1); ++i)
        tensor.set(i, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

// Each value behind `rows` of a unit that has fewer in use: nobody may use it.
void forget_unused(Tensor& tensor) {
  const TensorSpec& spec = tensor.spec();
  for (int64_t unit = 0; unit < spec.units(); ++unit) {
    const int64_t from = spec.index(unit, spec.rows_of(unit)), to = spec.index(unit + 1, 0);
    poison(spec.element, tensor.bytes().subspan(bytes_of(spec.element, from), bytes_of(spec.element, to - from)));
  }
}

// Entry i of the table that finds K's pages. Nobody may follow those behind a sequence's last key.
double page_of(const Spec& spec, const TensorSpec& K, int64_t i) {
  const int64_t sequence = i / K.pages(), j = i % K.pages();
  if (j * K.page >= keys_of(spec, sequence)) return j % 2 == 0 ? -1 : std::numeric_limits<int>::max();
  return static_cast<double>(K.place_of_page(sequence, j));
}

// `values` are [units, n, d]; a tensor takes its rows from them: row i of its unit u is row first + (i + turn) % n of
// values' unit u / group, where the units of a group are turned by different amounts. Of its row i, counted over all units, the row there.
int64_t row_in_values(const TensorSpec& spec, int64_t i, int64_t n, int64_t group, int64_t first) {
  const int64_t unit = i / spec.rows(), turned = (i % spec.rows() + unit % group * 29) % spec.rows();
  return (unit / group) * n + first + turned;
}
// Times a factor for each unit, each row or each column of a unit, if there are any.
Tensor tensor_of(const TensorSpec& spec, const Numbers& values, int64_t n, int64_t group, int64_t first,
                 const std::vector<float>& factors = {}, bool of_columns = false) {
  Tensor tensor(spec);
  const int64_t d = spec.columns();
  parallel_for(spec.units() * spec.rows(), 256, [&](int64_t begin, int64_t end) {
    std::vector<float> numbers(static_cast<size_t>(d));
    for (int64_t i = begin; i < end; ++i) {
      const float* const from = &values.of[static_cast<size_t>(row_in_values(spec, i, n, group, first) * d)];
      const int64_t rows = spec.units() * spec.rows();
      const float* const factor =
          factors.empty()
              ? nullptr
              : &factors[static_cast<size_t>(of_columns ? i / spec.rows() * d : i * std::ssize(factors) / rows)];
      for (int64_t c = 0; c < d; ++c)
        numbers[static_cast<size_t>(c)] = from[c] * (factor == nullptr ? 1 : factor[of_columns ? c : 0]);
      info(spec.element).write(numbers, tensor.at(i * d));
    }
  });
  return tensor;
}

// What the elements of a unit of K or V, or of a row or a column, are multiplied by: the largest of `count` values from `first` on becomes
// the largest of its type. Of other seeds some values are too large for that, or most are subnormal numbers.
float scale_of(Element element, const Numbers& values, int64_t number, int64_t first, int64_t count, uint64_t seed,
               int64_t step = 1) {
  float largest = 0;
  for (int64_t i = first; i < first + count * step; i += step)
    if (const float size = std::abs(values[i]); std::isfinite(size)) largest = std::max(largest, size);
  const uint64_t kind = (static_cast<uint64_t>(number) + seed) % 4;
  const float by = kind == 1 ? 0.5f : kind == 2 && info(element).has_nan ? 0x1p14f : 1;
  return by * largest / static_cast<float>(info(element).largest);
}

// The same of each unit, or of each of its rows or columns: of all that have a scale of their own.
std::vector<float> scales_of(const Spec& spec, const TensorSpec& keys, const Numbers& values, int64_t n,
                             uint64_t seed) {
  const int64_t d = spec.d;
  std::vector<float> scales;
  for (int64_t unit = 0; unit < keys.units(); ++unit) {
    if (spec.has_token_scales()) {
      for (int64_t row = unit * n; row < unit * n + keys.rows(); ++row)
        scales.push_back(scale_of(keys.element, values, row, row * d, d, seed));
    } else if (spec.has_channel_scales()) {
      for (int64_t column = 0; column < d; ++column)
        scales.push_back(scale_of(keys.element, values, unit + column, unit * n * d + column, n, seed, d));
    } else {
      scales.push_back(scale_of(keys.element, values, unit, unit * n * d, n * d, seed));
    }
  }
  return scales;
}

// Of a sequence the lists' numbers of that name, or null.
const std::vector<int>* list_named(std::string_view name, const Spec& spec) {
  if (!spec.blocks) return nullptr;
  const BlockLists& of = *block_lists(spec);
  return name == "lists" ? &of.lists : name == "counts" ? &of.counts : name == "order" ? &of.order : nullptr;
}

// As scores are, far above all of them (of an even number of heads by more than f32 has exponentials of), so far below that it counts
// where a query sees no key alone, or as if there were none: of four heads one each.
double sink_of(int64_t head, int64_t heads, uint64_t seed) {
  const int64_t which = (head + heads) % 4;
  return which == 1   ? (heads % 2 == 0 ? 130 : 70)
         : which == 2 ? -std::numeric_limits<double>::infinity()
         : which == 3 ? -30000
                      : 4 * uniform(seed, head, 5) - 1;
}

}  // namespace

std::span<const InputKind> all_input_kinds() {
  static const auto kinds = [] {
    std::array<InputKind, static_cast<size_t>(InputKind::huge_keys)> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<InputKind>(i);
    return all;
  }();
  return kinds;
}

std::string_view to_string(InputKind kind) {
  return NAMES[static_cast<size_t>(kind)];
}

// Made for as many queries as keys, and one head of queries for each of keys. Where there are fewer queries they are the
// last ones, which a mask aligns with the last keys; where there are fewer keys, the first ones. The other heads of a group have
// the first one's queries in another order.
Inputs make_inputs(InputKind kind, const Spec& spec, uint64_t seed) {
  Spec square = spec;
  square.heads = spec.key_heads();
  square.n = std::max(spec.n, spec.keys());
  if (spec.has_scales()) square.kv_type = Element::f16;  // before they are bytes
  if (spec.has_Q_scales()) square.q_type = Element::f16;
  if (spec.has_row_scales()) square.q_type = square.kv_type = spec.o_type;
  const QKV made = make_qkv(kind, square, seed);
  const int64_t group = spec.heads / spec.key_heads();
  const auto numbers_of = [&](std::string_view name) -> const Numbers& {
    return name == "Q" ? made.Q : name == "K" ? made.K : made.V;
  };
  // What a tensor's numbers are multiplied by, of each unit or row that has a scale of its own.
  const auto scales_in = [&](const TensorSpec& tensor) {
    const Numbers& numbers = numbers_of(tensor.name);
    if (spec.has_row_scales()) {
      const bool is_Q = tensor.name == "Q";
      std::vector<float> of_rows(static_cast<size_t>(tensor.units() * tensor.rows()));
      for (int64_t i = 0; i < std::ssize(of_rows); ++i) {
        const int64_t row = row_in_values(tensor, i, square.n, is_Q ? group : 1, is_Q ? square.n - spec.n : 0);
        of_rows[static_cast<size_t>(i)] = scale_of(tensor.element, numbers, row, row * spec.d, spec.d, seed + 2 * is_Q);
      }
      return of_rows;
    }
    if (tensor.name != "Q") return scales_of(spec, tensor, numbers, square.n, seed + (tensor.name == "V"));
    std::vector<float> scales;
    for (int64_t unit = 0; unit < tensor.units(); ++unit)
      scales.push_back(scale_of(tensor.element, numbers, unit / group, unit / group * square.n * spec.d,
                                square.n * spec.d, seed + 2 + static_cast<uint64_t>(unit % group)));
    return scales;
  };
  Tensors tensors;
  for (const TensorSpec& each : formula_of(spec).inputs(spec)) {
    if (each.name == "Q" || each.name == "K" || each.name == "V") {
      const bool is_Q = each.name == "Q";
      std::vector<float> factors;
      const bool of_rows = spec.has_row_scales() && each.name != "V";
      if (of_rows || (is_Q ? spec.has_Q_scales() : spec.has_scales())) factors = scales_in(each);
      for (float& scale : factors) scale = scale == 0 ? 1 : 1 / scale;
      Tensor& numbers =
          tensors.add(tensor_of(each, numbers_of(each.name), square.n, is_Q ? group : 1, is_Q ? square.n - spec.n : 0,
                                factors, !is_Q && spec.has_channel_scales()));
      if (!is_Q && kind == InputKind::nan_unseen) forget_unseen(numbers, spec);
    } else if (each.name.ends_with("_scales")) {
      Tensor& scales = tensors.add(Tensor(each));
      const std::vector<float> numbers = scales_in(tensors[each.name.substr(0, 1)].spec());
      for (int64_t i = 0; i < std::ssize(numbers); ++i) scales.set(i, numbers[static_cast<size_t>(i)]);
    } else if (const std::vector<int>* const listed = list_named(each.name, spec)) {
      Tensor& tensor = tensors.add(Tensor(each));
      const int64_t of_sequence = std::ssize(*listed) / spec.batch, of_all = of_sequence * spec.heads;
      for (int64_t i = 0; i < each.elements(); ++i)
        tensor.set(i, (*listed)[static_cast<size_t>(i / of_all * of_sequence + i % of_sequence)]);
    } else if (each.name == "stencils") {
      std::ranges::copy(std::as_bytes(std::span(block_lists(spec)->stencils)),
                        tensors.add(Tensor(each)).bytes().begin());
    } else {
      Tensor tensor(each);
      for (int64_t i = 0; i < each.columns(); ++i) {
        // Of an odd number of heads the first has a negative slope, as no model's head has: a kernel takes what it is given.
        const bool is_negative = spec.heads % 2 == 1 && i == 0;
        if (each.name == "first" || each.name == "end") {
          const Interval of = interval_of(spec, i / spec.n, i % spec.n);
          tensor.set(i, each.name == "first" ? of.first : of.end);
          continue;
        }
        const double value = each.name == "slopes"
                                 ? std::exp2(-8.0 * double(i + 1) / double(spec.heads)) * (is_negative ? -1 : 1)
                             : each.name == "sinks"         ? sink_of(i, spec.heads, seed)
                             : each.name == "cu_seqlens_q"  ? double(spec.lens_q.before(i))
                             : each.name == "cu_seqlens_k"  ? double(spec.lens_k.before(i))
                             : each.name == "cache_seqlens" ? double(keys_of(spec, i))
                                                            : page_of(spec, tensors["K"].spec(), i);
        tensor.set(i, value);
      }
      tensors.add(std::move(tensor));
    }
    if (each.lengths.count > 0) forget_unused(*std::prev(tensors.end()));
  }
  return tensors;
}

Inputs make_inputs(std::span<const InputKind> kinds, const Spec& spec, uint64_t seed) {
  if (kinds.size() == 1) return make_inputs(kinds.front(), spec, seed);
  Inputs inputs(formula_of(spec).inputs(spec));
  const int64_t units = int64_t{spec.batch} * spec.key_heads();
  for (int64_t i = 0; i < units; ++i) {
    Spec head = formula_of(spec).of_heads(spec, 1);
    const int64_t sequence = i / spec.key_heads();
    if (spec.lens_q.count > 0) head.lens_q = {.count = 1, .of = {spec.lens_q.of[sequence]}};
    if (spec.lens_k.count > 0) head.lens_k = {.count = 1, .of = {spec.lens_k.of[sequence]}};
    const InputKind kind = kinds[static_cast<size_t>(i) % kinds.size()];
    const Inputs one = make_inputs(kind, head, hash(seed) + static_cast<uint64_t>(i));
    for (size_t t = 0; t < one.size(); ++t) {
      const size_t bytes = one.at(t).bytes().size();
      if (!one.at(t).spec().is_fixed)
        std::ranges::copy(one.at(t).bytes(),
                          inputs.at(t).bytes().begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(i) * bytes));
    }
  }
  const Inputs whole = inputs.size() > 3 ? make_inputs(InputKind::normal, spec, seed) : Inputs();  // for what is fixed
  for (size_t t = 3; t < inputs.size(); ++t) {
    if (inputs.at(t).spec().is_fixed) inputs.at(t) = whole.at(t);
  }
  return inputs;
}

}  // namespace ladder
