#include "harness/verify/trials.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/problem/formula.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/problem/spec.hpp"

#ifndef LADDER_COMMIT
#define LADDER_COMMIT "none"
#endif

namespace ladder {
namespace {

constexpr int FAR_HEADS = 65535;   // CUDA's limit of gridDim.y
constexpr int MORE_HEADS = 65541;  // than 16 bits can number, where no side of the grid is that long
constexpr int64_t FAR_HEAD =
    (int64_t{1} << 32) / (FAR_HEADS - 1) + 1;  // elements of one, of so many that have more than 2^32
constexpr float OTHER_SCALE = 0.7f;
constexpr float SHARPER = 16;  // scores of ten thousand and more, above and below zero
constexpr int RANDOM_TRIALS = 8;
constexpr int MANY_HEADS = 35, FEWER_HEADS = 11;  // where others are more
constexpr uint32_t H200_MULTIPROCESSORS = 132;
constexpr int LONG_WALK = 2200;   // keys, or 66 tiles of them;
constexpr int MANY_TILES = 264;   // where tensor cores multiply, more than 8 bits number, a multiple of 8, 11 and 12;
constexpr int MASKED_TILES = 44;  // or under a mask so many
constexpr int FAR_WALK = 65536 + 29;  // keys
constexpr int SUBNORMAL = -14;        // times numbers of 1 or so: most are subnormal in f16
constexpr int WIDE_ROWS = 1 << 14;    // heads x keys
constexpr uint64_t MOST_WORKSPACE = uint64_t{1} << 30;
constexpr int LONG_HEAD = 4096 + 1;  // keys
// Whether the product with its own f32 reciprocal is below 1, as of 41: who divides so many tiles by multiplying takes a head's first one
// for one of the head before.
bool is_awkward(int tiles) {
  const float reciprocal = 1.0f / static_cast<float>(tiles);
  return static_cast<float>(tiles) * reciprocal < 1;
}

Shape with_mask(Shape shape) {
  shape.causal = true;
  return shape;
}

// The same with other heads, which share keys as before if their number allows it. Lengths are of a batch, and go with it.
Shape with_heads(Shape shape, int batch, int heads) {
  const int group = shape.heads / shape.key_heads();
  shape.batch = batch;
  shape.heads = heads;
  shape.kv_heads = group > 1 && heads % group == 0 ? heads / group : 0;
  shape.lens_q = shape.lens_k = {};
  shape.page = 0;
  return shape;
}

// Input sets, all or some, a head each, or a group of heads that share keys.
Trial all_sets(const Shape& of, uint64_t seed, std::span<const InputKind> kinds = all_input_kinds()) {
  int batch = 1;
  for (const int divisor : {5, 3, 2}) {
    if (static_cast<int>(kinds.size()) % divisor == 0) batch = divisor;
  }
  const int group = of.heads / of.key_heads();
  Shape shape = with_heads(of, batch, static_cast<int>(kinds.size()) / batch * group);
  if (of.lens_q.count > 0) {
    shape.lens_q.count = shape.lens_k.count = batch;
    for (int i = 0; i < batch; ++i) {
      shape.lens_q.of[i] = std::min(of.lens_q.of[i % of.batch], shape.n);
      shape.lens_k.of[i] = std::min(of.lens_k.of[i % of.batch], shape.keys());
    }
  }
  return {.shape = shape, .kinds = {kinds.begin(), kinds.end()}, .seed = seed};
}

bool takes_any_d(const Variant& variant) {
  return variant.accepts.min_d < variant.accepts.max_d && variant.accepts.d_step == 1;
}

// Another scale, other numbers of tiles, and for a variant that takes any head dimension one that no tile divides: nearly the
// largest, for the work of a head of so many elements grows with its length. Far from the first head, `known_heads` of many are
// judged.
Trial other_problem(const Variant& variant, Shape shape, uint64_t seed, int far_heads = 0, int known_heads = 0) {
  if (far_heads > 0) {
    shape.pad = 0;                            // what lies behind each row of so many heads would be gigabytes
    shape.alibi = shape.sink = false;         // numbers for each head are there for the known ones,
    shape.intervals = {}, shape.blocks = {};  // and intervals and lists for their sequences
  }
  if (takes_any_d(variant)) shape.d = variant.accepts.max_d - 1;
  shape.n = supported_length(variant, shape, static_cast<int>(FAR_HEAD / shape.d + 14) | 1);
  shape.softmax_scale = OTHER_SCALE * shape.scale();
  if (far_heads > 0) {
    // These are the dearest; they do not begin with the last head.
    shape = with_heads(shape, 1, takes_any_d(variant) ? 2 : known_heads);
    shape.kv_heads = 0;
  }
  return {.shape = shape, .seed = seed + 1, .far_heads = far_heads};
}

// Of these heads no query sees a key.
Trial without_keys(Trial trial) {
  trial.shape.n_k = 0;
  return trial;
}

// A head dimension that a check of one alone would not see, of a variant that takes any: remainders of loops that take four
// or eight columns at a time, and the largest.
Shape with_columns(const Variant& variant, Shape shape, int d) {
  if (takes_any_d(variant) && variant.accepts.min_d <= d && d <= variant.accepts.max_d) shape.d = d;
  return shape;
}

// Rows so far apart that the number of an element in a head leaves 31 bits, of V's 32, from the second tile of queries or of keys on:
// little work, in memory that is mostly not there. Keys are seen from the second tile on.
std::optional<Trial> far_rows(const Variant& variant, const Shape& usual, uint64_t seed) {
  constexpr int64_t FAR = int64_t{1} << 31;
  constexpr int SHORTEST = 32, MORE = 34;  // of a tile; rows behind one
  const auto [fewer, longer] = std::minmax({std::max(SHORTEST, variant.tile.br), std::max(SHORTEST, variant.tile.bc)});
  Shape shape = with_heads(usual, 1, 1);
  shape.layout = Layout::bhnd;
  shape.n = supported_length(variant, shape, longer + MORE);
  shape.pad = static_cast<int>(FAR / fewer / 64 + 1) * 64;
  if (variant.takes(WINDOW)) shape.left = MORE / 2;
  if (shape.n == 0 || !takes(variant, shape)) return std::nullopt;
  return Trial{.shape = shape, .seed = seed + 9};
}

// So many key tiles, or the fewest that the variant takes above, and at least so many keys: little work to deal out to blocks,
// and most of it is what a kernel does at its first and its last tile.
Trial few_tiles(const Variant& variant, Shape shape, uint64_t seed, int tiles, int heads, int least = 1) {
  shape = with_heads(shape, 1, heads);
  shape.n = supported_length(variant, shape, least, tiles);
  return {.shape = shape, .seed = seed + 2};
}

// The same problem with numbers of another magnitude: a kernel may have one built in, as a maximum to begin with, a mask or
// a clamp.
Trial of_magnitude(Trial trial, int q_exponent, int v_exponent, int k_exponent = 0) {
  const InputKind some[] = {InputKind::normal, InputKind::negative_rows, InputKind::peaky};  // the last beyond f16
  trial.kinds.clear();
  for (int64_t head = 0; head < trial.shape.batch_heads(); ++head) trial.kinds.push_back(some[head % 3]);
  trial.shape.softmax_scale = std::ldexp(trial.shape.scale(), -q_exponent - k_exponent);
  trial.exponents = {{"Q", q_exponent}, {"K", k_exponent}, {"V", v_exponent}};
  return trial;
}

// Queries and keys of nothing but zeros: all weights are equal, and nothing may be divided by the size of either.
Trial of_zeros(Trial trial) {
  trial.exponents = {{"Q", -40}, {"K", -40}};
  return trial;
}

// Scores as large as the variant takes them, on either side of zero. Where a maximum was rounded and a product was not, what is left of the
// largest score is up to half of the maximum's last place: beyond 2^24 that is no small number any more.
std::vector<Trial> largest_scores(const Variant& variant, const Shape& usual, uint64_t seed, bool any) {
  using enum InputKind;
  constexpr double LOG2E = 1.4426950408889634;
  constexpr int NEARLY_ALL = 13,
                BF16_MORE = 58;  // powers of two that N(0, 1) takes in f16; and in bf16, whose scores f32 still holds
  std::vector<Trial> trials;
  const auto add = [&](const Shape& shape, std::vector<InputKind> kinds, int q, int k, double scale) {
    Trial trial = few_tiles(variant, shape, seed, kinds.front() == negative_rows ? 2 : 3, 2);
    trial.kinds = std::move(kinds);
    trial.exponents = {{"Q", q}, {"K", k}};
    if (scale > 0) trial.shape.softmax_scale = static_cast<float>(scale);
    trial.also_fused = true;
    trial.ends_only = true;  // predictions are of ordinary scores
    trials.push_back(std::move(trial));
  };
  const double root = std::sqrt(static_cast<double>(usual.d));
  const bool can_mask = variant.takes(CAUSAL);
  Shape shape = can_mask ? with_mask(usual) : usual;
  if (variant.largest_score > 0 && !any) {
    const double most =
        6 * root * std::ldexp(1.0, 2 * NEARLY_ALL - 2);  // of so many scores none is beyond six deviations
    add(shape, {normal, ties}, NEARLY_ALL - 1, NEARLY_ALL - 1, variant.largest_score / LOG2E / most);
    add(usual, {huge_keys}, NEARLY_ALL - 1, 0, variant.largest_score / LOG2E / most / 2);
    return trials;
  }
  add(shape, {negative_rows, normal}, NEARLY_ALL, NEARLY_ALL, 8);
  add(shape, {ties, normal}, NEARLY_ALL, NEARLY_ALL, 8);
  // From small to huge in the middle of a walk: whoever has not looked at the scores first is surprised.
  add(usual, {huge_keys}, NEARLY_ALL, 0, 1 / root);
  if (can_mask) add(shape, {huge_keys}, NEARLY_ALL, 0, 1 / root);
  if (variant.accepts.kv != Element::bf16) return trials;
  if (variant.takes(WINDOW)) shape.left = 70;
  shape.sink = variant.takes(SINK);
  for (const int exponent : {17, BF16_MORE}) {
    add(usual, {ties, normal}, exponent, exponent, 0);
    add(shape, {ties, normal}, exponent, exponent, 0);
  }
  return trials;
}

bool has_tensor_cores(const Variant& variant, const Shape& shape) {
  if (!variant.predict) return false;
  const Counts counts = variant.predict(shape);
  return counts.mma + counts.wgmma > 0;
}

// Whether its grid, or what its blocks do, is another one where there are more multiprocessors than these.
bool depends_on_gpu(const Variant& variant, const Shape& shape, uint32_t multiprocessors) {
  if (!variant.predict) return false;
  const auto predicted = [&](uint32_t number) {
    Counts counts = variant.predict({shape, number});
    counts.products_of_busiest_sm = 0;  // who takes which block
    return counts;
  };
  return !(predicted(multiprocessors) == predicted(16 * multiprocessors));
}

// A workspace leads from one launch to the next, so all blocks run: of many keys there are few queries, or few of both.
Trial of_few_queries(const Variant& variant, Trial trial) {
  const int few = static_cast<int>(700 / std::sqrt(static_cast<double>(trial.shape.batch_heads())));
  Shape& shape = trial.shape;
  const int keys = shape.n;
  if (variant.takes(CROSS)) shape.n_k = keys;
  shape.n =
      supported_length(variant, shape, variant.takes(CROSS) ? std::max(1, variant.tile.br / 2) : std::min(keys, few));
  trial.ends_only = false;
  trial.some = 0;
  return trial;
}

// Maxima that stand anywhere, or grow to the last key, over so many tiles that all queries of all heads would take too
// long.
Trial long_walk(const Variant& variant, Shape shape, uint64_t seed) {
  const bool is_fast = has_tensor_cores(variant, shape);
  shape = with_heads(with_columns(variant, shape, 68), 1, is_fast ? 1 : 2);
  // More keys than a block has threads, each of which may take one at a time, and more tiles than 8 bits number: its last block alone.
  shape.n = supported_length(variant, shape, LONG_WALK, shape.causal ? MASKED_TILES : is_fast ? MANY_TILES : 66);
  std::vector<InputKind> kinds{InputKind::creeping_max, InputKind::peaky};
  kinds.resize(static_cast<size_t>(shape.heads));
  Trial trial{.shape = shape, .kinds = kinds, .seed = seed + 3, .ends_only = true, .some = is_fast ? 1 : 0};
  return variant.workspace_at(shape) > 0 ? of_few_queries(variant, trial) : trial;
}

// Drawn by the commit: another one the next time.
std::mt19937_64 of_commit(uint64_t seed) {
  const std::string text = LADDER_COMMIT + std::to_string(seed);
  std::seed_seq sequence(text.begin(), text.end());
  return std::mt19937_64(sequence);
}

// A head in each of so many sequences, with a sink and a slope where a variant takes those: who goes on from one head to
// another that is not the next one must find them.
Trial by_sequences(const Variant& variant, Trial trial) {
  if (!variant.takes(SINK) || !variant.takes(ALIBI)) return trial;
  std::swap(trial.shape.batch, trial.shape.heads);
  trial.shape.sink = trial.shape.alibi = true;
  trial.multiprocessors = 4;
  return trial;
}

// Each head surprises, in the middle of its walk, and not at its end.
Trial each_surprises(const Variant& variant, const Shape& shape, uint64_t seed) {
  Trial trial = few_tiles(variant, shape, seed, 3, 4);
  trial.kinds = {InputKind::edge_weights};
  trial.multiprocessors = 2;
  return by_sequences(variant, trial);
}

// Nobody wants the log-sum-exps, as in a model that is not trained; nor where there is no key. And where there is none, in several
// sequences, somebody does.
std::vector<Trial> without_lse(const Variant& variant, const Shape& shape, uint64_t seed) {
  if (!variant.writes_lse) return {};
  Trial trial = few_tiles(variant, shape, seed, 2, 2);
  trial.ends_only = trial.leaves_out = true;
  Trial no_keys = without_keys(trial);
  no_keys.shape.n = 3;
  if (!takes(variant, no_keys.shape)) return {trial};
  Trial wanted = no_keys;
  wanted.leaves_out = false;
  wanted.shape.batch = 3;
  wanted.shape.sink = variant.takes(SINK);
  return {trial, no_keys, wanted};
}

// More tiles of queries than a warp has lanes, an awkward number that the commit draws, in two heads, and of keys a tile at most.
std::optional<Trial> many_queries(const Variant& variant, const Shape& usual, uint64_t seed) {
  if (!has_tensor_cores(variant, usual)) return std::nullopt;
  std::mt19937_64 random = of_commit(seed);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<uint64_t>(count)); };
  Shape shape = with_heads(usual, 1, 2);
  int tiles = 33 + below(28);
  while (!is_awkward(tiles)) ++tiles;
  shape.n = std::max(16, variant.tile.br) * tiles - below(16);
  shape.n_k = 1 + below(std::max(16, variant.tile.bc));
  return Trial{.shape = shape, .seed = seed + 10};
}

// As many keys before a tile of queries, for a pass whose blocks own keys.
std::optional<Trial> many_keys(const Variant& variant, const Shape& usual, uint64_t seed) {
  std::optional<Trial> trial = many_queries(variant, usual, seed);
  if (!trial) return trial;
  std::swap(trial->shape.n, trial->shape.n_k);
  trial->shape.n = std::min(trial->shape.n, std::max(16, variant.tile.br));
  return trial;
}

// Scores far below -10^4, and so their sums: the weights alone are numbers as always.
Trial of_deep_sums(Trial trial) {
  constexpr float DEPTH = 90;  // times that of negative_rows, at d = 128
  trial.kinds = {InputKind::negative_rows};
  trial.shape.softmax_scale = DEPTH * std::sqrt(128.0f / static_cast<float>(trial.shape.d)) * trial.shape.scale();
  return trial;
}

// Heads and lengths as people run them, drawn by the commit. Some blocks of 16, 32 or 64 heads.
Trial long_and_wide(const Variant& variant, Shape shape, uint64_t seed, int rows = WIDE_ROWS) {
  std::mt19937_64 random = of_commit(seed);
  const int halvings = static_cast<int>(random() % 3), longest = rows >> (4 + halvings);
  const int least = longest / 2 + static_cast<int>(random() % static_cast<uint64_t>(longest / 2));
  const int batch = 1 << random() % 3;
  shape = with_heads(shape, batch, (16 << halvings) / batch);
  if (takes_any_d(variant))
    shape.d = std::max(variant.accepts.min_d, std::min(24, static_cast<int>(1 + random() % 24)));
  shape.n = supported_length(variant, shape, least);
  Trial trial{.shape = shape, .kinds = {InputKind::normal, InputKind::near_ties}, .seed = random(), .ends_only = true};
  return variant.workspace_at(shape) > 0 ? of_few_queries(variant, trial) : trial;
}

// So many heads for each of the keys as models have: 8:1, 16:2, 32:8, 64:8.
Shape as_models_share(const Variant& variant, Shape shape) {
  if (variant.takes(GROUPED)) shape.kv_heads = shape.heads <= 8 ? 1 : shape.heads == 16 ? 2 : 8;
  return shape;
}

// Heads and lengths as people run them: powers of two, and halves between. So many blocks beside each other run of each. Of the lengths
// that are not always there the commit draws one, another under a mask.
std::vector<Trial> as_people_run(const Variant& variant, const Shape& usual, uint64_t seed) {
  struct Run {
    int heads, n, blocks;
  };
  const bool is_fast = has_tensor_cores(variant, usual);
  std::vector<Run> runs = !is_fast ? std::vector<Run>{{16, 1024, 1}} : std::vector<Run>{{16, 2048, 8}};
  constexpr Run OTHERS[] = {{8, 640, 2}, {1, 4096, 1}};
  if (is_fast && variant.workspace_at(usual) == 0)
    runs.push_back(OTHERS[of_commit(seed + usual.causal)() % std::size(OTHERS)]);
  std::vector<Trial> trials;
  if (variant.workspace_at(usual) > 0 && !variant.takes(CROSS))
    return trials;  // all queries of so many keys take too long
  for (const auto& [heads, n, blocks] : runs) {
    Shape shape = as_models_share(variant, with_heads(usual, 1, heads));
    shape.n = supported_length(variant, shape, n);
    if (shape.n == 0) continue;
    const int rows = std::max(1, variant.tile.br);
    Trial trial{.shape = shape,
                .seed = of_commit(seed + static_cast<uint64_t>(n))(),
                .ends_only = true,
                .some = blocks * std::max(1, 32 / rows)};
    if (variant.workspace_at(shape) > 0) trial = of_few_queries(variant, trial);
    trials.push_back(std::move(trial));
  }
  return trials;
}

// Which head and which queries are whose, of whole heads beside each other, and of one with more tiles than 8 bits number, or as many, as
// the commit draws.
std::vector<Trial> whose_queries(const Variant& variant, const Shape& usual, uint64_t seed) {
  std::vector<Trial> trials;
  // Blocks that stay take more than they begin with, under a mask whatever there is to do.
  const bool stay = depends_on_gpu(variant, few_tiles(variant, usual, seed, 4, 4).shape, emulator::MULTIPROCESSORS);
  if (!has_tensor_cores(variant, usual) || (stay && (usual.causal || variant.few_rows > 0))) return trials;
  const int longest = 16384 << of_commit(seed)() % 2;
  for (const auto& [heads, n] : {std::pair{16, 1024}, {32, 512}, {8, 768}, {64, 320}, {2, 4096}, {1, longest}}) {
    if (usual.causal && n != 1024) continue;
    Shape shape = as_models_share(variant, with_heads(usual, 1, heads));
    shape.n = supported_length(variant, shape, n);
    if (shape.n == 0 || variant.workspace_at(shape) > MOST_WORKSPACE) continue;
    trials.push_back({.shape = shape, .seed = seed + 14, .begins_only = true});
  }
  return trials;
}

// More keys than 16 bits can number, more tiles than 8, and more than 2^32 scores; none for a variant that does not take so many.
std::optional<Trial> far_walk(const Variant& variant, const Shape& usual, uint64_t seed) {
  Shape shape = with_heads(usual, 1, 3);
  shape.n = supported_length(variant, shape, FAR_WALK);
  if (shape.n == 0) return std::nullopt;
  const std::vector<InputKind> kinds{InputKind::peaky, InputKind::last_tile_max, InputKind::ties};
  const Trial trial{.shape = shape, .kinds = kinds, .seed = seed + 4, .ends_only = true};
  return variant.workspace_at(shape) > 0 ? of_few_queries(variant, trial) : trial;
}

// As few columns as it takes, and more queries than CUDA's limit of gridDim.y, of a variant that takes any number of either.
std::optional<Trial> thin(const Variant& variant, const Shape& usual, uint64_t seed) {
  if (!takes_any_d(variant)) return std::nullopt;
  Shape shape = with_heads(usual, 1, 1);
  shape.d = variant.accepts.min_d;
  shape.n = supported_length(variant, shape, FAR_WALK);
  if (shape.n == 0 || variant.workspace_at(shape) > 0) shape.n = supported_length(variant, shape, 1024);
  return Trial{.shape = shape, .seed = seed + 11, .ends_only = true};
}

// Of a variant with a workspace: as many heads as need a little more of it than 32 bits can number, so that who numbers with these takes
// the first head's share for the end of the last one's.
std::optional<Trial> far_workspace(const Variant& variant, const Shape& usual, uint64_t seed) {
  constexpr uint64_t NUMBERS = uint64_t{1} << 32;
  Shape one = with_heads(with_columns(variant, usual, 24), 1, 1);
  one.intervals = {}, one.blocks = {};
  one.n = supported_length(variant, one, 257);
  const uint64_t share = variant.workspace_at(one) / sizeof(float);
  if (share * FAR_HEADS <= NUMBERS) return std::nullopt;
  return Trial{.shape = with_heads(one, 1, 3), .seed = seed + 12, .far_heads = static_cast<int>(NUMBERS / share) + 1};
}

// A few rows in each of more sequences than a block has threads.
std::optional<Trial> many_sequences(const Variant&, const Shape& usual, uint64_t seed) {
  constexpr int SEQUENCES = 1100;
  Shape shape = with_heads(usual, 3, 1);
  shape.n = 3;
  shape.alibi = shape.sink = false;
  shape.intervals = {}, shape.blocks = {};
  return Trial{.shape = shape, .seed = seed + 13, .far_heads = SEQUENCES};
}

// More queries than CUDA's limit of gridDim.y and .z, and more tiles of 16 where a workspace does not grow with their square; of sequences,
// one after the other, more tiles of them. Or as many keys as shared memory holds a row of.
std::optional<Trial> many_rows(const Variant& variant, const Shape& usual, uint64_t seed) {
  Shape shape = with_heads(usual, 1, 1);
  shape.n = FAR_WALK;
  int least = FAR_WALK;
  if (variant.workspace_at(shape) < MOST_WORKSPACE) least *= variant.takes(VARLEN) ? std::max(16, variant.tile.br) : 16;
  if (variant.smem_bytes_per_key > 0) {
    const uint32_t room = emulator::max_shared_memory(90) - static_cast<uint32_t>(variant.smem_at(0));
    least = static_cast<int>(room / variant.smem_bytes_per_key);
  }
  shape.n = supported_length(variant, shape, least);
  if (shape.n == 0) return std::nullopt;
  return Trial{.shape = shape, .seed = seed, .starts_only = true};
}

// All queries of a long head, of a variant whose products are fast enough for that.
std::optional<Trial> whole_head(const Variant& variant, const Shape& usual, uint64_t seed) {
  Shape shape = with_heads(usual, 1, 1);
  shape.n = supported_length(variant, shape, LONG_HEAD);
  if (shape.n == 0 || !has_tensor_cores(variant, shape)) return std::nullopt;
  return Trial{.shape = shape, .kinds = {InputKind::trained}, .seed = seed + 6};
}

// More rows of queries and of keys than 16 bits can number, in sequences one behind the other: few keys where there are many
// queries, and the other way round.
std::optional<Trial> far_lengths(const Variant&, const Shape& usual, uint64_t seed) {
  constexpr int LONG = 65536 / (Lengths::MOST / 2) + 29;
  Shape shape = with_heads(usual, Lengths::MOST, 1);
  shape.n = shape.n_k = LONG;
  shape.lens_q.count = shape.lens_k.count = Lengths::MOST;
  for (int i = 0; i < Lengths::MOST; ++i) {
    shape.lens_q.of[i] = i % 2 == 0 ? LONG : 1;
    shape.lens_k.of[i] = i % 2 == 0 ? 1 : LONG;
  }
  return Trial{.shape = shape, .seed = seed + 7};
}

// Fewer columns than the kernel has, one step up to one short of all, and behind each row what is nobody's: where the maps of the copy
// engine, or whoever loads and stores, end.
std::vector<Trial> fewer_columns(const Variant& variant, const Shape& usual, uint64_t seed) {
  const Accepts& accepts = variant.accepts;
  std::vector<Trial> trials;
  if (accepts.d_step == 1 || accepts.min_d == accepts.max_d) return trials;
  std::mt19937_64 random = of_commit(seed);
  const int steps = (accepts.max_d - accepts.min_d) / accepts.d_step;
  const int drawn = accepts.min_d + accepts.d_step * static_cast<int>(random() % static_cast<uint64_t>(steps));
  for (const int d : {accepts.min_d, drawn, accepts.max_d - accepts.d_step}) {
    Trial trial = few_tiles(variant, usual, seed + 15, 2, 2, 67);
    trial.shape.d = d;
    trial.shape.causal = d == drawn && variant.takes(CAUSAL);
    if (variant.takes(STRIDES)) trial.shape.layout = Layout::bnhd, trial.shape.pad = accepts.d_step;
    trials.push_back(std::move(trial));
  }
  if (variant.takes(VARLEN)) {
    Trial& trial = trials.emplace_back(trials.front());
    trial.shape.pad = 0, trial.shape.layout = usual.layout;
    trial.shape.d = drawn;
    trial.shape.batch = trial.shape.lens_q.count = trial.shape.lens_k.count = 2;
    trial.shape.n = trial.shape.lens_q.of[0] = trial.shape.lens_k.of[0] = 67;
    trial.shape.lens_q.of[1] = trial.shape.lens_k.of[1] = 33;
  }
  return trials;
}

// Few queries beside many keys, for who shares these out: in a window that fewer steps have keys of than there are shares, and under a mask
// that hides the last step from the first queries; with functions of scores, and with scores that are huge in two shares.
std::vector<Trial> few_beside_many(const Variant& variant, const Shape& usual, uint64_t seed) {
  std::vector<Trial> trials;
  if (variant.few_rows == 0) return trials;
  Shape shape = with_heads(usual, 1, 2);
  if (variant.takes(GROUPED)) shape.kv_heads = 1;
  constexpr int STEP = 128;  // keys, of warps that have a small tile each
  shape.n_k = 3 * std::max(STEP, variant.tile.bc) + 10;
  shape.n = 30;
  const auto add = [&](const Shape& of, uint64_t more) {
    trials.push_back({.shape = of, .seed = seed + more, .multiprocessors = H200_MULTIPROCESSORS});
  };
  if (variant.takes(CAUSAL)) add(with_mask(shape), 16);
  shape.n = 3, shape.left = 20, shape.right = 0;
  if (variant.takes(WINDOW)) add(shape, 17);
  // A sink counts once, however many shares know of it, and rows of one tile are of heads with other slopes.
  for (const int n_k : {200, 1000}) {
    if (!variant.takes(SINK)) break;
    Shape scored = with_heads(usual, 1, 8);
    scored.kv_heads = variant.takes(GROUPED) ? 2 : 8;
    scored.n = 2, scored.n_k = n_k, scored.sink = true, scored.alibi = variant.takes(ALIBI);
    scored.softcap = variant.takes(SOFTCAP) ? 20 : 0;
    trials.push_back({.shape = scored, .seed = seed + 19});
  }
  if (variant.largest_score > 0) return trials;
  // Two keys of the same huge score in two shares: the maxima that these know of it may be a rounding apart.
  Shape huge = with_heads(usual, 1, 2);
  if (variant.takes(GROUPED)) huge.kv_heads = 1;
  huge.n = 20, huge.n_k = 600;
  trials.push_back({.shape = huge,
                    .kinds = {InputKind::huge_keys},
                    .seed = seed + 18,
                    .exponents = {{"Q", 13}},
                    .ends_only = true,
                    .also_fused = true});
  return trials;
}

// The problems of the formula's own that the variant takes, each with an input set for each head of its keys.
std::vector<Trial> formula_trials(const Variant& variant, const Spec& usual, uint64_t seed) {
  const Formula& formula = formula_of(usual);
  const InputKind some[] = {InputKind::normal, InputKind::peaky, InputKind::sinks, InputKind::one_hot};
  const bool has_kinds = formula.is_attention || !formula.kinds.empty();
  std::vector<Trial> trials;
  if (formula.trials == nullptr) return trials;
  for (Spec spec : formula.trials(variant.accepts, usual)) {
    if (!takes(variant, spec) && spec.keys() == spec.n) spec.n = supported_length(variant, spec, spec.n);
    if (spec.n == 0 || !takes(variant, spec)) continue;
    const bool is_long = spec.keys() > LONG_HEAD;
    Trial trial{.shape = spec, .kinds = {}, .seed = seed + 5};
    // Of those in a row, which ask for much the same, every other one.
    trial.both_builds = trials.size() % 2 == 0 && (!is_long || spec.lens_k.count > 0);
    constexpr int64_t MOST_SETS = 16;
    const int64_t all = int64_t{spec.batch} * spec.key_heads();
    int64_t units = std::min(all, MOST_SETS);  // with a set each, and the others again
    while (all % units != 0) --units;
    for (int64_t unit = 0; unit < units; ++unit) {
      trial.kinds.push_back(has_kinds ? some[unit % 4] : InputKind::normal);
      if (!has_kinds) break;
    }
    // Nothing of a head of NaN comes into the one before or behind, nor to a query that sees no key.
    if (has_kinds && units > 1) trial.kinds[static_cast<size_t>(units / 2)] = InputKind::nan_head;
    trials.push_back(std::move(trial));
  }
  // Of those that ask for the same features the one with most scores is recorded.
  std::map<uint32_t, Trial*> most;
  const auto scores = [](const Spec& spec) { return int64_t{spec.batch} * spec.heads * spec.n * spec.keys(); };
  for (Trial& trial : trials) {
    if (std::max(trial.shape.n, trial.shape.keys()) > LONG_HEAD) continue;
    Trial*& known = most.try_emplace(needs(trial.shape), &trial).first->second;
    if (scores(trial.shape) > scores(known->shape)) known = &trial;
  }
  for (const auto& [features, trial] : most) trial->recorded = true;
  return trials;
}

// Of sets that are alike one is enough: of those with a sink `trained`, of those with one key for each query wide_values or peaky.
std::vector<InputKind> unlike(std::span<const InputKind> kinds) {
  constexpr InputKind ALIKE[] = {InputKind::sinks, InputKind::sinks14, InputKind::sinks35, InputKind::large_logits,
                                 InputKind::one_hot};
  std::vector<InputKind> few;
  std::ranges::copy_if(kinds, std::back_inserter(few),
                       [&](InputKind kind) { return std::ranges::find(ALIKE, kind) == std::end(ALIKE); });
  return few;
}

// A problem of a variant that takes any lengths of both sides, with some of all else that it takes: drawn by the commit.
std::optional<Trial> drawn_problem(const Variant& variant, const Shape& usual, uint64_t seed) {
  std::mt19937_64 random = of_commit(seed);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<uint64_t>(count)); };
  const auto draws = [&](Feature feature) { return variant.takes(feature) && below(2) == 1; };
  Shape shape = with_heads(usual, 1 + below(2), 1 + below(3));
  // Every third length lies at the edge of a tile, or is next to nothing.
  const auto length = [&](int most, int tile, int least) {
    if (below(3) > 0) return least + below(most + 1 - least);
    if (below(3) == 0) return std::max(least, below(3));
    tile = std::max(16, tile);
    return std::clamp(tile * (1 + below(1 + most / tile)) + below(3) - 1, least, most);
  };
  shape.n = length(300, variant.tile.br, 1), shape.n_k = length(900, variant.tile.bc, 1);
  if (draws(VARLEN)) {
    shape.batch = shape.lens_q.count = shape.lens_k.count = 2 + below(3);
    for (int i = 0; i < shape.batch; ++i) {
      shape.lens_q.of[i] = length(shape.n, variant.tile.br, 0);
      shape.lens_k.of[i] = length(shape.keys(), variant.tile.bc, 0);
    }
    shape.n = std::max(1, *std::max_element(shape.lens_q.of, shape.lens_q.of + shape.batch));
    shape.n_k = std::max(1, *std::max_element(shape.lens_k.of, shape.lens_k.of + shape.batch));
  } else if (draws(CACHE)) {
    constexpr int PAGES_OF[] = {1, 8, 16, 48, 64, 256};
    shape.page = draws(PAGES) ? PAGES_OF[below(static_cast<int>(std::size(PAGES_OF)))] : -1;
    shape.batch = shape.lens_k.count = 2 + below(3);
    for (int i = 0; i < shape.batch; ++i) shape.lens_k.of[i] = length(shape.keys(), variant.tile.bc, 0);
  }
  shape.kv_heads = shape.heads;
  if (draws(GROUPED)) shape.heads *= 1 + below(4);
  shape.causal = draws(CAUSAL);
  if (draws(WINDOW)) {
    // Every fourth side has no end, every other fourth one begins or ends with a tile for the first or the last of its queries.
    const int tile = std::max(16, variant.tile.bc);
    const auto side = [&] {
      if (below(4) == 0) return -1;
      if (below(4) == 0) return std::max(0, tile * below(1 + shape.n_k / 2 / tile) - below(2));
      return below(1 + shape.n_k / 2);
    };
    shape.left = side();
    shape.right = shape.causal ? 0 : side();
    shape.causal |= shape.right == 0;  // a window that ends with a query's own key is a mask, and said to be one
  }
  if (shape.lens_q.count == 0 && draws(INTERVALS)) {
    Intervals& intervals = shape.intervals;
    (below(2) == 1 ? intervals.scattered : intervals.documents) = 1 + below(7);
    if (intervals.documents > 0) intervals.seed = 1 + below(99);
    if (!shape.causal && below(3) == 0) intervals.prefix = below(1 + shape.n_k / 2);
  }
  if (shape.lens_q.count == 0 && draws(BLOCKS)) {
    Blocks& blocks = shape.blocks;
    blocks = {.density = static_cast<float>(1 + below(8)) / 8, .seed = 1 + below(99), .keys = below(2) == 1 ? 64 : 128};
    if (below(2) == 1) blocks.partial = static_cast<float>(1 + below(4)) / 4;
  }
  if (draws(SOFTCAP)) shape.softcap = static_cast<float>(1 + below(30));
  shape.alibi = draws(ALIBI);
  shape.sink = draws(SINK);
  if (draws(STRIDES) && shape.lens_q.count == 0) {
    shape.layout = below(2) == 1 ? Layout::bnhd : Layout::bhnd;
    shape.pad = 8 * below(3);
  }
  if (!takes(variant, shape)) return std::nullopt;
  return Trial{
      .shape = shape, .seed = seed + 8, .multiprocessors = static_cast<uint32_t>(2 + below(12)), .both_builds = true};
}

// The same of a formula that is not attention.
std::optional<Trial> largest_of_formula(const Variant& variant, const Shape& usual, uint64_t seed) {
  using enum InputKind;
  constexpr double LOG2E = 1.4426950408889634;
  constexpr int MORE = 10;  // powers of two in Q and in K: gradients by either stay within f16
  if (variant.largest_score == 0) return std::nullopt;
  Trial trial = few_tiles(variant, variant.takes(CAUSAL) ? with_mask(usual) : usual, seed, 2, 3, 67);
  trial.kinds = {normal, ties, negative_rows};
  trial.exponents = {{"Q", MORE}, {"K", MORE}};
  const double most = 6 * std::sqrt(static_cast<double>(usual.d)) * std::ldexp(1.0, 2 * MORE);
  trial.shape.softmax_scale = static_cast<float>(variant.largest_score / LOG2E / most);
  trial.also_fused = true;
  return trial;
}

// Of a formula that is not attention: normal inputs at the shape, what it knows of input sets in little, and its own problems. With
// `quick` two of these: all sets, and both builds with one; or without sets the first.
std::vector<Trial> other_formula_trials(const Variant& variant, const Shape& shape, const TrialChoice& choice) {
  std::vector<InputKind> kinds = formula_of(shape).kinds;
  if (choice.quick) {
    kinds = unlike(kinds);
    std::erase(kinds, InputKind::giant_keys);  // creeping_max is enough where nobody looks for a maximum
    std::erase_if(kinds, [i = 0](InputKind) mutable { return i++ % 2 == 0; });  // every other one: gradients take long
  }
  std::vector<Trial> trials;
  if (!choice.quick || kinds.empty())
    trials.push_back({.shape = shape, .seed = choice.seed, .both_builds = kinds.empty(), .recorded = kinds.empty()});
  for (const bool causal : {false, true}) {
    if (kinds.empty() || (causal && (shape.causal || !variant.takes(CAUSAL)))) continue;
    const Shape of = causal ? with_mask(shape) : shape;
    Shape few = choice.quick ? with_columns(variant, of, 72) : of;
    few.n = supported_length(variant, of, 33, 2);
    Trial& sets = trials.emplace_back(all_sets(few, choice.seed, kinds));
    sets.both_builds = sets.also_fused = sets.recorded = !choice.quick;
    if (choice.quick) {
      trials.emplace_back(few_tiles(variant, few, choice.seed, 2, 1, 33)).both_builds = true;
      return trials;
    }
    // Of four heads on five SMs it matters under a mask which blocks begin first.
    Trial& small =
        trials.emplace_back(of_magnitude(few_tiles(variant, with_columns(variant, of, 70), choice.seed, 3, 4), 6, 2));
    small.multiprocessors = 5;
    small.both_builds = variant.same_bits;  // of two numbers the sum is the same in either order, of three it is not
    trials.push_back(of_zeros(few_tiles(variant, of, choice.seed, 1, 1)));
    if (variant.takes(TAILS) || !causal) trials.push_back(of_deep_sums(few_tiles(variant, of, choice.seed, 1, 2)));
    // Gradients as small as those of a mean over many tokens, down to where their type has few such numbers; keys as large show it in
    // dQ. And in f16 as large as a scaled loss makes them.
    const bool is_bf16 = variant.accepts.kv == Element::bf16;
    const int small_by = is_bf16 ? -30 : -10;
    const Trial two = few_tiles(variant, of, choice.seed, 2, is_bf16 ? 3 : 2);  // the third set is peaky, beyond f16
    trials.emplace_back(of_magnitude(two, small_by, 0, -small_by)).exponents["dO"] = small_by;
    if (!is_bf16) trials.emplace_back(two).exponents = {{"dO", 5}};
    if (!causal) trials.push_back(other_problem(variant, of, choice.seed, FAR_HEADS, 3));
  }
  return trials;
}

// Raw bits of the generator: what a distribution makes of them differs between libraries.
std::vector<Trial> random_trials(const Variant& variant, const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t count) { return static_cast<int>(random() % count); };
  const auto all = all_input_kinds();
  std::vector<Trial> trials;
  for (int i = 0; i < RANDOM_TRIALS; ++i) {
    const int batch = 1 + below(3);
    Shape chosen = with_heads(shape, batch, 1 + below(5));
    if (takes_any_d(variant))
      chosen.d =
          variant.accepts.min_d + below(static_cast<uint64_t>(variant.accepts.max_d - variant.accepts.min_d) + 1);
    if (variant.takes(CAUSAL)) chosen.causal = shape.causal || below(2) == 1;
    const int least = 1 + below(1024);
    chosen.n = supported_length(variant, chosen, least);
    if (variant.takes(CROSS) && variant.takes(TAILS) && below(2) == 1) chosen.n_k = below(1024);
    chosen.softmax_scale = shape.scale() * (0.25f + static_cast<float>(below(1024)) / 512);
    Trial trial{.shape = chosen, .kinds = {}, .seed = random()};
    for (int64_t head = 0; head < chosen.batch_heads(); ++head) trial.kinds.push_back(all[below(all.size())]);
    trials.push_back(std::move(trial));
  }
  return trials;
}

// More shares than an H200 has SMs, or pairs of them: one tile in as few heads as give each of them one, and some a second.
std::optional<Trial> second_round(const Variant& variant, const Shape& shape, uint64_t seed) {
  for (const uint32_t sms : {H200_MULTIPROCESSORS / 2, H200_MULTIPROCESSORS}) {
    Trial trial = few_tiles(variant, shape, seed, 1, static_cast<int>(sms) + 5);
    trial.multiprocessors = H200_MULTIPROCESSORS;
    if (depends_on_gpu(variant, trial.shape, H200_MULTIPROCESSORS)) return trial;
  }
  return std::nullopt;
}

// More rounds of one block than a byte can number.
std::optional<Trial> many_rounds(const Variant& variant, const Shape& shape, uint64_t seed) {
  constexpr int ROUNDS = 258;
  Trial trial = few_tiles(variant, shape, seed, 1, ROUNDS);
  trial.multiprocessors = 2;  // or a pair's blocks have no room
  if (!depends_on_gpu(variant, trial.shape, trial.multiprocessors)) return std::nullopt;
  return trial;
}

// What a first look at a rung takes: about 0.2 s of a core.
std::vector<Trial> quick_trials(const Variant& variant, const Shape& shape, const TrialChoice& choice) {
  const uint64_t seed = choice.seed;
  std::vector<Trial> trials;
  std::vector<InputKind> kinds = unlike(all_input_kinds());
  // Without tensor cores a set takes as long as four with them: every third one.
  const bool is_slow = !has_tensor_cores(variant, shape), both_masks = variant.takes(CAUSAL) && !shape.causal;
  if (is_slow) std::erase_if(kinds, [i = 0](InputKind) mutable { return i++ % 3 != 0; });
  const auto sets = [&](Shape of) {
    if (!choice.n_given) of.n = supported_length(variant, of, 33, 2);
    trials.emplace_back(all_sets(of, seed, kinds)).ends_only =
        of.n > 128 || (!of.causal && variant.tile.br >= 128) || (is_slow && of.n == 128);
  };
  sets(shape);
  // Around the rings of the copies, once: under the mask where there is one.
  const int tiles = choice.beside ? 9 : both_masks || is_slow ? 3 : 4;
  Trial& around = trials.emplace_back(few_tiles(variant, with_columns(variant, shape, 72), seed, tiles, 1, 99));
  around.both_builds = true;  // of more tiles and fewer rows: the second build costs little there
  around.ends_only = !choice.beside;
  around.shape.softmax_scale = OTHER_SCALE * shape.scale();
  // More shares than multiprocessors, or pairs of them.
  const Trial shares = few_tiles(variant, with_columns(variant, shape, 70), seed, 1, 5);
  trials.emplace_back(of_magnitude(shares, SUBNORMAL, -4, SUBNORMAL)).multiprocessors = 6;
  if (both_masks) {
    sets(with_mask(shape));
    trials.emplace_back(few_tiles(variant, with_mask(shape), seed, 5, 1)).ends_only = !choice.beside;
  }
  return trials;
}

// ---- the table of all trials ----------------------------------------------------------------------------------------

// What they are made for. Under a mask too, the problem without one says how fast a variant is, and whether its blocks stay and take more
// than they begin with.
struct Plan {
  const Variant& variant;
  Shape shape;
  const TrialChoice& choice;
  bool is_fast = has_tensor_cores(variant, shape);
  bool stay = depends_on_gpu(variant, few(4, 4).shape, emulator::MULTIPROCESSORS);

  Trial few(int tiles, int heads, int least = 1, int columns = 0) const {
    return few_tiles(variant, columns > 0 ? with_columns(variant, shape, columns) : shape, choice.seed, tiles, heads,
                     least);
  }
  int far_heads() const { return stay ? MORE_HEADS : FAR_HEADS; }
  int other_n() const { return takes_any_d(variant) ? 98 : 1; }
  std::optional<Trial> second() const {
    return second_round(variant, variant.takes(CAUSAL) ? with_mask(shape) : shape, choice.seed);
  }
};

enum When : uint32_t {
  USUAL = 1,
  MASKED = 2,     // and under a mask, where the problem has none and the variant takes one
  OTHER = 4,      // of formulas that are not attention
  THOROUGH = 8,   // only where somebody asks
  EACH_MASK = 16  // the same, without a mask and under one
};

// A trial, or several of one kind: their name, the mistake that they are for, for whom, and the problem, which is either made by a function
// or of so many tiles and heads, with what the text of a Spec says, inputs, and how it is run.
struct Row {
  std::string_view name, mistake;
  uint32_t when = USUAL, needs = 0;  // features: a variant that lacks one has no such trial
  bool (*only_if)(const Plan&) = nullptr;
  std::vector<Trial> (*make)(const Plan&) = nullptr;
  int tiles = 0, heads = 1;  // 0: as the text says
  const char* text = "";
  void (*change)(Spec&) = nullptr;  // what no text can say
  std::vector<InputKind> kinds = {InputKind::normal};
  float scale = 1;                     // times the usual one
  std::array<int, 2> magnitudes = {};  // of Q and of V, as of_magnitude has them
  uint32_t multiprocessors = emulator::MULTIPROCESSORS;
  bool ends_only = false, both_builds = false, recorded = false;
  const Formula* formula = nullptr;  // whose own it is; null: of any

  std::vector<Trial> trials(const Plan& plan) const {
    if (make != nullptr) return make(plan);
    const Shape shape = parse_spec(text, plan.shape).value();
    Trial trial{.shape = shape, .seed = plan.choice.seed};
    if (tiles > 0) trial = few_tiles(plan.variant, shape, plan.choice.seed, tiles, heads);
    if (scale != 1) trial.shape.softmax_scale = scale * trial.shape.scale();
    trial.kinds = kinds;
    if (magnitudes[0] != 0) trial = of_magnitude(trial, magnitudes[0], magnitudes[1]);
    trial.multiprocessors = multiprocessors;
    trial.ends_only = ends_only, trial.both_builds = both_builds, trial.recorded = recorded;
    if (change != nullptr) change(trial.shape);
    return {trial};
  }
};

std::vector<Trial> listed(std::vector<Trial> trials) {
  return trials;
}
std::vector<Trial> listed(std::optional<Trial> trial) {
  return trial ? std::vector{*trial} : std::vector<Trial>();
}
template <auto MAKE>
std::vector<Trial> made(const Plan& plan) {
  return listed(MAKE(plan.variant, plan.shape, plan.choice.seed));
}

// Three tiles, or two large ones; where a product and its sum are rounded once two, and of sets that are alike one.
std::vector<Trial> sets(const Plan& plan) {
  const Variant& variant = plan.variant;
  const int tile = std::max(1, variant.tile.bc);
  Shape of = plan.shape;
  if (!plan.choice.n_given)
    of.n = plan.is_fast && tile > 64 ? supported_length(variant, of, 2 * tile - 29, 2)
                                     : supported_length(variant, of, takes_any_d(variant) ? 67 : 102, 3);
  std::vector<Trial> trials{all_sets(of, plan.choice.seed)};
  if (!plan.choice.n_given) of.n = supported_length(variant, of, 67, 2);
  std::vector<InputKind> numbers = unlike(all_input_kinds());
  std::erase_if(numbers, [](InputKind kind) { return !has_numbers(kind) || kind == InputKind::constant_v; });
  trials.emplace_back(all_sets(of, plan.choice.seed, numbers)).only_fused = true;
  return trials;
}

std::vector<Trial> far_apart(const Plan& plan, int far_heads, int known_heads) {
  Trial trial = other_problem(plan.variant, plan.shape, plan.choice.seed, far_heads, known_heads);
  if (plan.stay &&
      plan.variant.few_rows > 0) {  // each block has the work of hundreds of heads: of few queries and keys
    trial.shape.n = 2;
    trial.shape.n_k = plan.variant.tile.bc + 3;
  }
  return {trial};
}

// Rows whose scores are all negative tell a maximum that begins at 0 from one that begins at a huge negative number.
std::vector<Trial> subnormals(const Plan& plan) {
  Trial trial =
      of_magnitude(plan.few(2, plan.is_fast && !plan.stay ? 3 : 8, plan.other_n(), 70), SUBNORMAL, -4, SUBNORMAL);
  trial.multiprocessors = 12;
  trial.both_builds = plan.is_fast;  // or it takes long
  return {trial};
}

// Scores as usual with the largest scale, and with the least.
std::vector<Trial> scales_apart(const Plan& plan) {
  std::vector<Trial> trials;
  for (const float scale : {0x1p-20f, 0x1p6f}) {
    for (const int by_head : {0, 1}) {
      Trial& trial = trials.emplace_back(plan.few(2, 4));
      trial.shape.softmax_scale = scale;
      trial.exponents = {{SCALES_APART, by_head}};
      trial.kinds.resize(4, trial.kinds[0]);
    }
  }
  return trials;
}

// Of every remainder that a loop may leave, one block each. More of them where products are fast: then the commit draws each number of tiles
// of up to 32 now and then, and a multiple of 11 to 15 each time.
std::vector<Trial> remainders(const Plan& plan) {
  std::vector<std::pair<int, int>> numbers{{4, 48}, {5, 96}, {6, 40}, {8, 24}, {9, 64}, {10, 72}};
  std::mt19937_64 random = of_commit(plan.choice.seed);
  const auto once_or_twice = [&](int tiles) { numbers.emplace_back(tiles << random() % 2, 64); };
  if (plan.variant.tile.bc > 16) {
    for (const int tiles : {11, 12}) once_or_twice(tiles);
  }
  if (plan.is_fast) {
    constexpr int OTHERS[] = {16, 17, 18, 19, 20, 21, 23, 25, 27, 29, 31, 32};
    for (const int tiles : {13, 14, 15}) once_or_twice(tiles);
    numbers.emplace_back(OTHERS[random() % std::size(OTHERS)], 64);
  }
  constexpr InputKind MOVING[] = {InputKind::normal,       InputKind::near_ties, InputKind::rising_weights,
                                  InputKind::creeping_max, InputKind::peaky,     InputKind::trained};
  std::vector<Trial> trials;
  for (const auto& [tiles, columns] : numbers) {
    if (plan.variant.takes(CAUSAL) && plan.variant.tile.bc > 0 && 4 < tiles && tiles < 9)
      continue;  // under the mask, below
    Trial trial = plan.few(tiles, 1, 29 * tiles, columns);
    trial.ends_only = true;
    trial.some = plan.is_fast || tiles > 10 ? 1 : 0;
    // Maxima move from tile to tile in most of them, and one has a scale below 0.002.
    if (tiles > 8) trial.kinds = {MOVING[tiles % std::size(MOVING)]};
    trials.push_back(tiles == 4 ? of_magnitude(trial, 8, 0) : trial);
  }
  return trials;
}

Trial sharp(const Plan& plan, int columns, int tiles, int heads, std::vector<InputKind> kinds, uint32_t sms) {
  Trial trial = plan.few(tiles, heads, 1, columns);
  trial.shape.softmax_scale = SHARPER * plan.shape.scale();
  trial.kinds = std::move(kinds);
  trial.multiprocessors = sms;
  return trial;
}

bool deals_out(const Plan& plan) {
  return plan.second().has_value();
}

// clang-format off
using enum InputKind;
const Row ROWS[] = {
    {.name = "the problem", .mistake = "anything",
     .make = [](const Plan& p) -> std::vector<Trial> { return {{.shape = p.shape, .seed = p.choice.seed, .recorded = true}}; }},
    {.name = "all input sets", .mistake = "a softmax that is right on tame scores alone, or with one rounding more", .make = sets},
    {.name = "65535 heads", .mistake = "another scale or number of tiles than usual; numbers of 32 bits for elements, of 16 for heads",
     .make = [](const Plan& p) { return far_apart(p, p.far_heads(), p.is_fast ? 2 : 3); }},
    {.name = "65535 heads without a key", .mistake = "a row without keys that is not 0", .needs = CROSS,
     .make = [](const Plan& p) { return std::vector{without_keys(far_apart(p, p.far_heads(), 3).front())}; }},
    // On more than eight SMs, and no multiple of eight: 132 is none either.
    {.name = "large queries", .mistake = "a scale below 0.002, or a number that is built in", .tiles = 1, .heads = 3,
     .magnitudes = {6, 8}, .multiprocessors = H200_MULTIPROCESSORS},
    {.name = "subnormal numbers", .mistake = "a scale far above 3, subnormals that are 0, a maximum that begins at 0", .make = subnormals},
    {.name = "scales apart", .mistake = "a scale that f16 does not hold before or behind a product, or one of 0 beside a hidden score",
     .only_if = [](const Plan& p) { return p.shape.has_scales() && !p.shape.has_Q_scales(); }, .make = scales_apart},
    {.name = "zeros", .mistake = "a division by the size of queries or keys",
     .make = [](const Plan& p) { return std::vector{of_zeros(p.few(1, 1))}; }},
    {.name = "remainders", .mistake = "loops over tiles, over columns and, in a rung without tiles, over keys that leave a part out",
     .make = remainders},
    {.name = "a sharp scale", .mistake = "scores of ten thousand and more",
     .make = [](const Plan& p) {
       Trial trial = sharp(p, p.variant.accepts.max_d, 7, 1, {peaky}, 6);
       trial.ends_only = p.is_fast && !p.stay;
       return std::vector{trial};
     }},
    {.name = "sharp scales in many heads", .mistake = "what one head leaves to the next, and threads that run in another order",
     .make = [](const Plan& p) {
       Trial trial = sharp(p, p.variant.accepts.max_d - 1, 1, deals_out(p) ? FEWER_HEADS : MANY_HEADS,
                           {peaky, negative_rows, normal, not_finite, ties}, 5);
       trial.schedule = p.choice.seed | 1;
       return std::vector{trial};
     }},
    {.name = "more shares than SMs", .mistake = "a block's second share", .only_if = deals_out,
     .make = [](const Plan& p) {
       Trial trial = *p.second();
       trial.recorded = true;
       return std::vector{trial};
     }},
    // A few multiprocessors deal out heads of which the first surprises whoever has not looked at its scores, and no other one does.
    {.name = "one surprise", .mistake = "a head that is careful because the one before was, or is not", .only_if = deals_out, .tiles = 2,
     .heads = 6, .kinds = {sinks35, normal, normal, normal, normal, normal}, .multiprocessors = 2},
    {.name = "a surprise in each head", .mistake = "a block that goes on to a head that is not the next one", .only_if = deals_out,
     .make = made<each_surprises>},
    // As many heads, in pairs, as cannot be dealt out evenly.
    {.name = "pairs of heads", .mistake = "heads that share keys, dealt out to few SMs", .needs = GROUPED | CAUSAL, .only_if = deals_out,
     .tiles = 3, .heads = 10, .text = "h=2 kv=1 causal", .multiprocessors = 6},
    {.name = "a diagonal across tiles", .mistake = "a tile of keys that somebody passes by, and never gives back", .needs = CROSS | CAUSAL | TAILS,
     .only_if = deals_out, .text = "b=1 h=9 nq=300 nk=340 causal", .multiprocessors = 6},
    {.name = "no log-sum-exps", .mistake = "outputs that are written, or waited for, though nobody wants them", .needs = STRIDES,
     .make = made<without_lse>},
    {.name = "the first key", .mistake = "a walk from the end that meets late what nearly all queries like best",
     .only_if = [](const Plan& p) { return p.variant.from_first_key; }, .tiles = 4, .heads = 2, .kinds = {sinks35}},
    {.name = "a long walk", .mistake = "keys that a block's threads, or tiles that 8 bits cannot number; maxima that grow to the last key",
     .make = made<long_walk>},
    {.name = "long and wide", .mistake = "heads and lengths as people run them, drawn by the commit",
     .make = [](const Plan& p) { return std::vector{long_and_wide(p.variant, p.shape, p.choice.seed)}; }},
    {.name = "as people run", .mistake = "powers of two that are taken for others", .make = made<as_people_run>},
    {.name = "whose queries", .mistake = "a query that is nobody's, or whose head is another one", .make = made<whose_queries>},

    {.name = "all input sets, masked", .mistake = "a mask that lets a key through, or hides one", .when = MASKED, .make = sets},
    {.name = "65534 heads, masked", .mistake = "two sequences far apart", .when = MASKED,
     .make = [](const Plan& p) { return far_apart(p, p.far_heads() - 1, p.is_fast ? 2 : 3); }},
    {.name = "large queries, masked", .mistake = "a mask of a number that scores reach", .when = MASKED, .tiles = 1, .heads = 3,
     .magnitudes = {5, 8}},
    {.name = "two tiles, masked", .mistake = "a variable that nobody has set, on the diagonal", .when = MASKED, .tiles = 2, .heads = 8,
     .both_builds = true},
    {.name = "four tiles, masked", .mistake = "columns that no tile divides", .when = MASKED,
     .make = [](const Plan& p) { return std::vector{p.few(4, 1, p.other_n(), 70)}; }},
    // Of several heads, work that is dealt out by shares of a head goes on in the middle of one.
    {.name = "five tiles, masked", .mistake = "work that goes on in the middle of a head", .when = MASKED, .tiles = 5, .heads = 4,
     .recorded = true},
    {.name = "three tiles of queries of three heads, masked", .mistake = "a head or a tile that is left over where they are dealt out by twos",
     .when = MASKED, .only_if = deals_out,
     .make = [](const Plan& p) { return std::vector{p.few(1, 3, 3 * std::max(1, p.variant.tile.br) - 5)}; }},
    {.name = "six tiles, masked", .mistake = "a remainder of two of the loop over tiles", .when = MASKED, .tiles = 6},
    {.name = "seven tiles, masked", .mistake = "a remainder of three", .when = MASKED, .tiles = 7},
    {.name = "eight tiles, masked", .mistake = "no remainder", .when = MASKED, .tiles = 8},
    {.name = "nine tiles, masked", .mistake = "maxima that move from tile to tile", .when = MASKED, .tiles = 9, .kinds = {peaky}},
    {.name = "long and wide, masked", .mistake = "heads and lengths as people run them, drawn by the commit", .when = MASKED,
     .make = [](const Plan& p) {
       return std::vector{long_and_wide(p.variant, p.shape, p.choice.seed + 1, WIDE_ROWS / 2)};
     }},
    {.name = "a long walk, masked", .mistake = "a mask far from the first tile", .when = MASKED, .make = made<long_walk>},
    {.name = "24 tiles, masked", .mistake = "the first and the last of many tiles of queries", .when = MASKED, .tiles = 24, .ends_only = true},
    {.name = "as people run, masked", .mistake = "powers of two that are taken for others", .when = MASKED, .make = made<as_people_run>},
    {.name = "whose queries, masked", .mistake = "a query that is nobody's, or whose head is another one", .when = MASKED,
     .make = made<whose_queries>},

    {.name = "the largest scores", .mistake = "a maximum that was rounded and a product that was not",
     .make = [](const Plan& p) { return largest_scores(p.variant, p.shape, p.choice.seed, p.choice.any_scores); }},
    {.name = "the formula's own", .mistake = "each feature by itself, and all at once", .when = USUAL | OTHER, .make = made<formula_trials>},
    {.name = "fewer columns", .mistake = "columns behind a row that are nobody's", .when = USUAL | OTHER, .make = made<fewer_columns>},
    {.name = "few queries beside many keys", .mistake = "shares of keys that nobody sees", .needs = CROSS | TAILS, .make = made<few_beside_many>},
    {.name = "many rows", .mistake = "a grid that cannot be launched", .when = USUAL | OTHER, .make = made<many_rows>},
    {.name = "rows far apart", .mistake = "elements of a head in 31 bits", .when = USUAL | OTHER, .needs = STRIDES, .make = made<far_rows>},
    {.name = "a workspace far away", .mistake = "elements of the workspace in 32 bits", .when = USUAL | OTHER, .make = made<far_workspace>},
    {.name = "1100 sequences", .mistake = "a thread for each sequence", .when = USUAL | OTHER, .needs = VARLEN | TAILS,
     .make = made<many_sequences>},
    {.name = "few columns of many rows", .mistake = "one column, and queries that gridDim.y cannot number", .make = made<thin>},
    {.name = "a short text beside a long one", .mistake = "a share without a key, or a text that begins with a block and ends three later",
     .needs = CACHE | TAILS | CROSS, .text = "b=2 h=1 nq=1 nk=768 cache lens_k=100,768"},
    {.name = "many texts", .mistake = "the 33rd text, or the 65th", .needs = CACHE | TAILS | CROSS,
     .text = "b=150 h=1 nq=1 nk=40 cache lens_k=70*40,3,0,77*17,9", .multiprocessors = H200_MULTIPROCESSORS},
    {.name = "slopes of odd groups", .mistake = "two rows of a lane that are of two heads", .needs = ALIBI | GROUPED | TAILS | CROSS,
     .text = "b=1 h=6 kv=2 nq=5 nk=300 alibi"},
    {.name = "many queries", .mistake = "more tiles than a warp has lanes, a division by a reciprocal", .needs = TAILS | CROSS,
     .make = made<many_queries>},
    {.name = "many keys", .mistake = "the same of a pass whose blocks own keys", .when = OTHER, .needs = TAILS | CROSS, .make = made<many_keys>},
    {.name = "drawn", .mistake = "a problem that somebody expects: the commit draws another one", .when = USUAL | OTHER,
     .needs = TAILS | CROSS, .make = made<drawn_problem>},
    {.name = "drawn again", .mistake = "the same", .needs = TAILS | CROSS,
     .make = [](const Plan& p) { return listed(drawn_problem(p.variant, p.shape, p.choice.seed + 1)); }},
    {.name = "the formula's largest scores", .mistake = "a maximum that was rounded and a product that was not", .when = OTHER,
     .make = made<largest_of_formula>},

    {.name = "random", .mistake = "what nobody has thought of", .when = THOROUGH, .make = made<random_trials>},
    {.name = "more drawn", .mistake = "the same, of all that a variant takes", .when = THOROUGH, .needs = TAILS | CROSS,
     .make = [](const Plan& p) {
       std::vector<Trial> trials;
       for (uint64_t i = 2; i < 2 + RANDOM_TRIALS; ++i)
         std::ranges::move(listed(drawn_problem(p.variant, p.shape, p.choice.seed + i)), std::back_inserter(trials));
       return trials;
     }},
    {.name = "a far walk", .mistake = "keys in 16 bits, tiles in 8, scores in 32", .when = EACH_MASK, .make = made<far_walk>},
    {.name = "longer and wider", .mistake = "heads and lengths as people run them, drawn by the commit", .when = EACH_MASK,
     .make = [](const Plan& p) {
       return std::vector{long_and_wide(p.variant, p.shape, p.choice.seed + 2, 4 * WIDE_ROWS)};
     }},
    {.name = "a whole head", .mistake = "one query of many thousands", .when = EACH_MASK, .make = made<whole_head>},
    {.name = "far lengths", .mistake = "rows of all sequences in 16 bits", .when = THOROUGH, .needs = VARLEN | TAILS,
     .make = made<far_lengths>},
    {.name = "many rounds", .mistake = "rounds of a block in 8 bits", .when = THOROUGH, .make = made<many_rounds>},
};
// clang-format on

// Of more keys than the variant adds up rightly, none whose values have one sign for long, or whose weights rise and
// fall.
void spare_long_sums(const Variant& variant, std::vector<Trial>& trials) {
  const auto ends = [](int limit, const Trial& trial) { return limit > 0 && trial.shape.keys() > limit; };
  for (Trial& trial : trials) {
    const bool one_sign = ends(variant.keys_of_one_sign, trial),
               rising = one_sign || ends(variant.keys_of_rising_weights, trial);
    for (InputKind& kind : trial.kinds) {
      const bool has_one_sign = kind == InputKind::near_ties || kind == InputKind::one_sign;
      if ((one_sign && has_one_sign) || (rising && kind == InputKind::rising_weights)) kind = InputKind::normal;
    }
  }
}

// The table, and behind it what each formula's file has of its own.
const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> made(std::begin(ROWS), std::end(ROWS));
    for (const Formula* const formula : formulas()) {
      for (const OwnTrial& own : formula->own_trials) {
        made.push_back({.name = own.name,
                        .mistake = own.mistake,
                        .when = USUAL | OTHER,
                        .needs = own.needs,
                        .tiles = own.tiles,
                        .heads = own.heads,
                        .text = own.text,
                        .change = own.change,
                        .kinds = own.kinds,
                        .scale = own.scale,
                        .multiprocessors = own.multiprocessors,
                        .ends_only = own.ends_only,
                        .both_builds = own.both_builds,
                        .formula = formula});
      }
    }
    return made;
  }();
  return all;
}

// visit(row, its trials, or some of them), of all but the quick ones.
template <class Visit>
void for_each_row(const Variant& variant, const Shape& shape, const TrialChoice& choice, const Visit& visit) {
  const Plan plan{variant, shape, choice};
  Plan masked = plan;
  masked.shape.causal = true;
  const Formula& formula = formula_of(shape);
  const auto of = [&](const Row& row, uint32_t when, const Plan& own) {
    const bool is_asked = (row.when & when) != 0 && (variant.accepts.features & row.needs) == row.needs &&
                          (row.formula == nullptr || row.formula == &formula);
    if (!is_asked || (row.only_if != nullptr && !row.only_if(own))) return;
    std::vector<Trial> trials = row.trials(own);
    for (Trial& trial : trials) {
      if ((when & (THOROUGH | EACH_MASK)) != 0) trial.schedule = trial.seed | 1;
    }
    visit(row, std::move(trials));
  };
  const bool is_attention = formula.is_attention, both_masks = variant.takes(CAUSAL) && !shape.causal;
  for (const Row& row : rows()) {
    of(row, is_attention ? USUAL : OTHER, plan);
    if (is_attention && both_masks) of(row, MASKED, masked);
  }
  if (!choice.thorough || !is_attention) return;
  for (const Row& row : rows()) {
    of(row, THOROUGH | EACH_MASK, plan);
    if (both_masks) of(row, EACH_MASK, masked);
  }
}

}  // namespace

int supported_length(const Variant& variant, Shape shape, int least, int tiles) {
  const int tile = std::max(1, variant.tile.bc);
  const int outside = variant.takes(TAILS) && tiles % 4 != 0 ? std::min(tiles % 2 == 1 ? 29 : 48, tile / 2) : 0;
  for (shape.n = std::max(least, tile * tiles - outside); !takes(variant, shape); ++shape.n) {
    if (shape.n > least + (1 << 16)) return 0;  // no length at all: the shape's d, say, which another check refuses
  }
  return shape.n;
}

std::vector<Trial> emulator_trials(const Variant& variant, const Shape& shape, const TrialChoice& choice) {
  std::vector<Trial> trials;
  for (const InputKind kind : choice.inputs) {
    trials.push_back({.shape = shape, .kinds = {kind}, .seed = choice.seed, .both_builds = trials.empty()});
  }
  if (!trials.empty()) return trials;
  const bool is_attention = formula_of(shape).is_attention;
  if (is_attention && choice.quick) {
    trials = quick_trials(variant, shape, choice);
    if (!choice.any_scores) spare_long_sums(variant, trials);
    return trials;
  }
  if (!is_attention) trials = other_formula_trials(variant, shape, choice);
  if (choice.quick) return trials;

  for_each_row(variant, shape, choice,
               [&](const Row&, std::vector<Trial> of_row) { std::ranges::move(of_row, std::back_inserter(trials)); });
  if (!choice.any_scores) spare_long_sums(variant, trials);
  return trials;
}

std::vector<TrialRow> trial_rows(const Variant& variant, const Shape& shape, const TrialChoice& choice) {
  std::vector<TrialRow> made;
  for (const Row& row : rows()) made.push_back({row.name, row.mistake, 0});
  for_each_row(variant, shape, choice, [&](const Row& row, const std::vector<Trial>& of_row) {
    made[static_cast<size_t>(&row - rows().data())].trials += of_row.size();
  });
  return made;
}

std::vector<Trial> gpu_trials(const Variant& variant, const Shape& shape, const TrialChoice& choice) {
  constexpr size_t MOST_BYTES = size_t{1} << 30;  // of one tensor; more where rows lie far apart, and with `thorough`
  std::vector<Trial> trials;
  const auto add = [&](Trial trial) {
    // Which of these there are is the emulator's business.
    trial.ends_only = trial.both_builds = trial.also_fused = trial.begins_only = trial.recorded = false;
    trial.some = 0;
    trial.multiprocessors = Trial().multiprocessors;
    trial.schedule = 0;
    const auto inputs = formula_of(trial.shape).inputs(trial.shape);
    const bool is_far =
        std::ranges::any_of(inputs, [&](const TensorSpec& input) { return input.memory_bytes() > MOST_BYTES; });
    if (is_far && !choice.thorough) return;
    if (std::ranges::find(trials, trial) == trials.end()) trials.push_back(std::move(trial));
  };
  const bool is_attention = formula_of(shape).is_attention;
  if (choice.quick && is_attention) {
    add(all_sets(shape, choice.seed));
    if (variant.takes(CAUSAL) && !shape.causal) add(all_sets(with_mask(shape), choice.seed));
    return trials;
  }
  // All that the emulator meets, but for heads whose memory is not there and launches that nobody runs.
  for (Trial& trial : emulator_trials(variant, shape, choice)) {
    if (trial.far_heads == 0 && !trial.starts_only && !trial.only_fused) add(std::move(trial));
  }
  if (!choice.inputs.empty() || !is_attention) return trials;
  // A head as long as 2^32 elements leave it.
  add(other_problem(variant, shape, choice.seed));
  if (variant.takes(CAUSAL) && !shape.causal) add(other_problem(variant, with_mask(shape), choice.seed));
  if (choice.thorough) add(other_problem(variant, shape, choice.seed, FAR_HEADS - 1, 2));
  return trials;
}

}  // namespace ladder
