// The gradients of attention: by how much a loss changes with each number of Q, K and V, when it changes by dO with those of O.
//   P = exp(Q K^T * softmax_scale - LSE)    the weights, once more, from what the forward pass has left
//   D = rowsum(dO * O)                      what a row's weights take from each other: they sum to 1
//   dV = P^T dO,   dS = P * (dO V^T - D),   dQ = softmax_scale dS K,   dK = softmax_scale dS^T Q
// Where a function f is applied to the scaled scores, P is of f's answers, and dS is multiplied by f's derivative of each score: 1 -
// tanh^2 of a softcap; a slope has 1. A sink is in LSE, so P and D have it. Its own gradient is that of a key without a value, whose
// dP is 0: dsinks = -sum over queries of exp(sink - LSE) D, for each head of each sequence.
// O and LSE are inputs, rounded as a forward pass leaves them, and the answers follow from these. A row without keys has no
// weights: its gradients are 0, and so are those of a key that nobody sees.
#include "harness/problem/formula.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "harness/base/parallel.hpp"
#include "harness/problem/spec.hpp"

namespace ladder {
namespace {

Spec forward_of(const Spec& spec) {
  Spec forward = spec;
  forward.formula = "forward";
  return forward;
}
const Formula& forward() {
  return formula_of(Spec{});
}

std::vector<TensorSpec> inputs(const Spec& spec) {
  std::vector<TensorSpec> specs = forward().inputs(forward_of(spec));
  const std::vector<TensorSpec> left = forward().outputs(forward_of(spec));
  TensorSpec dO = left.front();
  dO.name = "dO";
  specs.insert(specs.end(), left.begin(), left.end());
  specs.push_back(dO);
  return specs;
}

// Of Q, K and V, in their types and as they lie in memory; and of sinks.
std::vector<TensorSpec> outputs(const Spec& spec) {
  std::vector<TensorSpec> specs = forward().inputs(forward_of(spec));
  specs.resize(3);
  constexpr const char *NAMES[] = {"dQ", "dK", "dV"}, *ROWS[] = {"query", "key", "key"};
  for (size_t i = 0; i < specs.size(); ++i) specs[i].name = NAMES[i], specs[i].row = ROWS[i];
  if (spec.sink) specs.push_back(tensor("dsinks", Element::f32, {spec.batch, spec.heads, 1, 1}));
  return specs;
}

// FlashAttention's convention: five products where the forward pass has two.
Work work(const Spec& spec) {
  return {.flops = 2.5 * forward().work(forward_of(spec)).flops,
          .bytes = bytes_of_rows(inputs(spec)) + bytes_of_rows(outputs(spec))};
}

// Per head, with n rows of d elements of 2 bytes: Q, K, V, O and dO are read once and dQ, dK and dV written once, 16nd.
//   P and dS kept in global memory: each is written once, 4n^2, and read twice, P for dV and dS, dS for dQ and dK: 24n^2.
//   tiles: each of the n / b_k tiles of keys reads all of Q and dO, 4nd bytes; each of the n / b_q of queries K and V.
//   one walk: in place of the second, each tile of keys adds to all of dQ, in f32: 4nd bytes, too.
// Causal, half of that. What a workspace holds besides is written once and read once.
IoModel io_model(const Variant& variant, const Spec& spec) {
  const double n = spec.n, nd = n * spec.d, heads = static_cast<double>(spec.batch_heads()),
               half = spec.causal ? 0.5 : 1;
  if (variant.stores_scores) {
    return {heads * (16 * nd + half * 24 * n * n), spec.causal ? "16nd + 12n^2" : "16nd + 24n^2"};
  }
  const bool one_walk = variant.predict && variant.predict(spec).gmem_bytes_reduced > 0;
  const int bc = std::max(1, variant.tile.bc), br = one_walk ? bc : std::max(1, variant.tile.br);
  return {heads * (16 * nd + half * 4 * nd * (n / br + n / bc)) + 2 * static_cast<double>(variant.workspace_at(spec)),
          fmt::format(fmt::runtime(spec.causal ? "16nd + 2n^2 d (1/{} + 1/{}) + 2 of the workspace"
                                               : "16nd + 4n^2 d (1/{} + 1/{}) + 2 of the workspace"),
                      br, bc)};
}

void leave_what_forward_leaves(const Spec& spec, Tensors& inputs) {
  std::vector<Cell> all;
  const TensorSpec& O = inputs["O"].spec();
  for (int64_t unit = 0; unit < O.units(); ++unit) {
    for (int64_t row = 0; row < O.rows_of(unit); ++row) all.push_back({unit, row});
  }
  inputs["O"].poison();  // what is behind the last row of a sequence
  inputs["LSE"].poison();
  const Reference left = make_reference(forward_of(spec), inputs, all, 1, Beside::nothing);
  for (const Reference::Answer& answer : left.answers) {
    Tensor& tensor = inputs[answer.output];
    for (size_t i = 0; i < answer.cells.size(); ++i) {
      const int64_t at = tensor.spec().index(answer.cells[i].unit, answer.cells[i].row);
      for (int64_t column = 0; column < answer.columns; ++column)
        tensor.set(at + column, answer.row(i)[static_cast<size_t>(column)]);
    }
  }
}

// Q, K and V of all kinds; dO is N(0, 1).
Tensors make_backward_inputs(std::span<const InputKind> kinds, const Spec& spec, uint64_t seed) {
  const Tensors given = make_inputs(kinds, forward_of(spec), seed);
  Spec like_O = forward_of(spec);
  like_O.q_type = spec.o_type;
  const Tensors normal = make_inputs(InputKind::normal, like_O, ~seed);
  Tensors made(inputs(spec));
  for (const Tensor& each : given) std::ranges::copy(each.bytes(), made[each.name()].bytes().begin());
  std::ranges::copy(normal["Q"].bytes(), made["dO"].bytes().begin());
  leave_what_forward_leaves(spec, made);
  return made;
}

// All rows of each gradient when that is cheap. A row costs up to four times as much as one of O.
Cells cells(const Spec& spec) {
  Spec of_queries = spec;
  of_queries.d *= 4;
  Spec of_keys = of_queries;
  of_keys.n = spec.keys(), of_keys.n_k = spec.n;
  of_keys.heads = spec.key_heads(), of_keys.kv_heads = 0;
  of_keys.lens_q = spec.lens_k;
  const std::vector<Cell> queries = choose_cells(of_queries), keys = choose_cells(of_keys);
  Cells chosen{queries, keys, keys};
  if (spec.sink) {
    std::vector<Cell>& heads = chosen.emplace_back();
    for (const Cell& query : queries) {
      if (heads.empty() || heads.back().unit != query.unit) heads.push_back({query.unit, 0});
    }
  }
  return chosen;
}

// What belongs to a head of queries.
struct Queries {
  Rows Q, dO, O;
  std::vector<float> LSE;
  std::tuple<std::vector<double>, std::vector<float>> D;  // in the type that is asked for
  Modifiers modifiers;
  int64_t own;  // where the first one would be among the keys

  Queries(const Spec& spec, const Tensors& inputs, int64_t unit)
      : Q(inputs["Q"], unit, Rows::transposed_too),
        dO(inputs["dO"], unit, Rows::transposed_too),
        O(inputs["O"], unit, Rows::transposed_too),
        LSE(Q.n),
        modifiers(modifiers_of(spec, inputs, unit)),
        own(key_of_query(spec, unit / spec.heads, 0)) {
    inputs["LSE"].read(inputs["LSE"].spec().index(unit, 0), LSE);
    for (int64_t i = 0; i < Q.n; ++i) {
      const auto dO_row = dO.row(i), O_row = O.row(i);
      std::get<0>(D).push_back(
          std::inner_product(dO_row.begin(), dO_row.end(), O_row.begin(), 0.0, std::plus(), std::multiplies<double>()));
      std::get<1>(D).push_back(std::inner_product(dO_row.begin(), dO_row.end(), O_row.begin(), 0.0f));
    }
  }

  struct OfSink {
    double value = 0, tolerance = 0;
  };
  // Weights and D are as far off as f32 has LSE and a sum of d products, and the terms' sum as it has that.
  OfSink gradient_of_sink(double cut) const {
    OfSink sum;
    for (int64_t i = 0; i < Q.n; ++i) {
      if (std::isinf(LSE[i])) continue;  // neither a key nor a sink has a weight
      const double D_here = std::get<0>(D)[i], P = std::exp(*modifiers.sink - LSE[i]);
      const double of_LSE = P > 0 ? 2 + std::abs(*modifiers.sink) + std::abs(LSE[i]) : 0;
      sum.value -= P * D_here;
      sum.tolerance += P * cut * dO.length[i] * O.length[i] +
                       (0x1p-22 * of_LSE * P + 0x1p-126) * std::abs(D_here);  // f32 has no smaller weights
    }
    return sum;
  }
};

enum class Gradient { dQ, dK, dV };
constexpr size_t GRADIENTS = 3;

// A row of a gradient is a sum of rows of the other side: dQ of keys, dK and dV of queries. The factors of these are P or dS.
struct Row {
  Gradient of;
  const Spec& spec;
  const Queries& queries;
  const Rows &K, &V;
  int64_t row;  // its own
  KeyRuns others;

  bool of_query() const { return of == Gradient::dQ; }
  const Rows& summed() const { return of_query() ? K : of == Gradient::dK ? queries.Q : queries.dO; }
  double factor() const { return of == Gradient::dV ? 1 : spec.scale(); }
  Element rounded_to() const { return of == Gradient::dV ? spec.o_type : spec.q_type; }

  // Of this row and the others, own[c] other[c] summed over columns.
  template <class T>
  std::vector<T> products(const Rows& own, const Rows& other) const {
    const std::vector<T> factors(own.row(row).begin(), own.row(row).end());
    std::vector<T> sums;
    for (const Keys& run : others) {
      sums.resize(sums.size() + static_cast<size_t>(run.size()));
      add_product(std::span(sums).last(static_cast<size_t>(run.size())), factors, &other.transposed[run.first],
                  other.n);
    }
    return sums;
  }
  // What the rows of the other side are multiplied by: P, or dS. With `doubt`, also how far each may be off, to first order, where
  // a sum of d products is off by `cut` of the lengths of the two rows.
  template <class T>
  std::vector<T> factors(double cut = 0, std::vector<double>* doubt = nullptr) const {
    std::vector<T> S = of_query() ? products<T>(queries.Q, K) : products<T>(K, queries.Q), dP;
    if (of != Gradient::dV) dP = of_query() ? products<T>(queries.dO, V) : products<T>(V, queries.dO);
    size_t j = 0;
    for (const Keys& run : others) {
      for (int64_t other = run.first; other < run.last; ++other, ++j) {
        const int64_t query = of_query() ? row : other, key = of_query() ? other : row;
        const auto [score, derivative] =
            queries.modifiers.change(S[j] * static_cast<T>(spec.scale()), key - (query + queries.own));
        const T P = std::exp(score - static_cast<T>(queries.LSE[query]));
        S[j] = of == Gradient::dV ? P : P * derivative * (dP[j] - std::get<std::vector<T>>(queries.D)[query]);
        if (!doubt) continue;
        double of_S = cut * queries.Q.length[query] * K.length[key] * spec.scale();
        if (queries.modifiers.softcap > 0) of_S *= 1 + 2 / queries.modifiers.softcap;  // of P, and of the derivative
        const double of_dP = of == Gradient::dV ? 0 : cut * queries.dO.length[query] * V.length[key];
        doubt->push_back(std::abs(S[j]) * of_S + P * of_dP);
      }
    }
    return S;
  }
  // add(factors, rows) of each run of the other side.
  template <class T, class Add>
  void for_each_run(std::span<const T> factors, const Add& add) const {
    for (const Keys& run : others) {
      add(factors.first(static_cast<size_t>(run.size())), &summed().rows[run.first * summed().d]);
      factors = factors.subspan(static_cast<size_t>(run.size()));
    }
  }
  template <class T>
  void add_to(std::span<T> sum, std::span<const T> factors) const {
    for_each_run(factors, [&](auto some, const float* rows) { add_product(sum, some, rows, summed().d); });
  }
};

// Errors of plain gradients: P and dS rounded to the types of their products, sums in f32. Row tolerances: the difference dP - D
// may vanish, and what f32 cuts off from its parts then stays. Sums of d products in another order are off by 2^-23 of the lengths
// of both rows, a few times as much as usual, and of these the root of the sum of squares stays in a gradient. Tensor cores cut off
// 2^-22 at each of d / 16 steps, always towards zero (reference.hpp), which may add up.
struct Errors {
  double max = 0, squares = 0;
  int64_t elements = 0;
};

Reference make_gradients(const Spec& spec, const Tensors& inputs, const Cells& cells, size_t sets,
                         bool on_tensor_cores) {
  const int64_t group = spec.heads / spec.key_heads(), d = spec.d;
  constexpr int64_t ROWS_AT_A_TIME = 4;
  const double cut = on_tensor_cores ? 0x1p-22 * (1 + static_cast<double>(d) / 16) : 0x1p-23;
  const std::vector<TensorSpec> specs = outputs(spec);
  Reference reference;
  std::vector<std::vector<Errors>> errors(GRADIENTS, std::vector<Errors>(sets));
  for (size_t which = 0; which < specs.size(); ++which) {
    reference.answers.push_back({.output = specs[which].name,
                                 .columns = specs[which].columns(),
                                 .cells = cells[which],
                                 .values = std::vector<double>(cells[which].size() * specs[which].columns()),
                                 .row_tolerance = std::vector<double>(cells[which].size()),
                                 .group = specs[which].units() == specs[0].units() ? group : 1,
                                 .sets = sets});
  }
  for (int64_t key_head = 0; key_head < int64_t{spec.batch} * spec.key_heads(); ++key_head) {
    const int64_t sequence = key_head / spec.key_heads();
    const auto begins = [&](const Reference::Answer& answer, int64_t unit) {
      return std::ranges::lower_bound(answer.cells, unit, {}, &Cell::unit) - answer.cells.begin();
    };
    if (std::ranges::all_of(reference.answers, [&](const Reference::Answer& answer) {
          return begins(answer, key_head * answer.group) == begins(answer, (key_head + 1) * answer.group);
        }))
      continue;
    const Rows K(inputs["K"], key_head, Rows::transposed_too), V(inputs["V"], key_head, Rows::transposed_too);
    std::vector<Queries> queries;
    for (int64_t i = 0; i < group; ++i) queries.emplace_back(spec, inputs, key_head * group + i);
    if (spec.sink) {
      Reference::Answer& answer = reference.answers.back();
      for (int64_t i = begins(answer, key_head * group); i < begins(answer, (key_head + 1) * group); ++i) {
        const auto [value, tolerance] = queries[answer.cells[i].unit % group].gradient_of_sink(cut);
        answer.values[i] = value, answer.row_tolerance[i] = tolerance;
      }
    }
    for (size_t which = 0; which < GRADIENTS; ++which) {
      Reference::Answer& answer = reference.answers[which];
      const auto of = static_cast<Gradient>(which);
      const int64_t begin = begins(answer, key_head * answer.group),
                    end = begins(answer, (key_head + 1) * answer.group);
      // Added up in their order, whoever is done first: the same problem has the same tolerances to the last bit.
      std::vector<Errors> parts((end - begin + ROWS_AT_A_TIME - 1) / ROWS_AT_A_TIME);
      parallel_for(end - begin, ROWS_AT_A_TIME, [&](int64_t first, int64_t last) {
        Errors& part = parts[static_cast<size_t>(first / ROWS_AT_A_TIME)];
        for (int64_t i = begin + first; i < begin + last; ++i) {
          const Cell cell = answer.cells[i];
          const KeyRuns others = (of == Gradient::dQ ? runs_of_keys : runs_of_queries)(spec, sequence, cell.row);
          const std::span exact(&answer.values[i * d], static_cast<size_t>(d));
          std::vector<float> plain(d);
          std::vector<double> doubts(d);
          double factor = 1;
          for (int64_t head = 0; head < group; ++head) {
            if (of == Gradient::dQ && head != cell.unit % group) continue;
            const Row row{of, spec, queries[head], K, V, cell.row, others};
            factor = row.factor();
            std::vector<double> doubt;
            row.add_to<double>(exact, row.factors<double>(cut, &doubt));
            std::vector<float> rough = row.factors<float>();
            info(row.rounded_to()).round(rough);
            row.add_to<float>(plain, rough);
            row.for_each_run<double>(doubt, [&](auto some, const float* rows) {
              add_magnitudes(doubts, some, rows, d, on_tensor_cores ? 1 : 2);
            });
          }
          for (int64_t c = 0; c < d; ++c) {
            exact[c] *= factor;
            if (!std::isfinite(exact[c])) continue;
            const double value = plain[c] * static_cast<float>(factor);
            part.max = std::max(part.max, std::abs(value - exact[c]) + half_step(specs[which].element, exact[c]));
            part.squares += std::pow(rounded(specs[which].element, value) - exact[c], 2);
            ++part.elements;
            const double off = factor * (on_tensor_cores ? doubts[c] : std::sqrt(doubts[c]));
            answer.row_tolerance[i] = std::max(answer.row_tolerance[i], off);
          }
        }
      });
      for (const Errors& part : parts) {
        Errors& sum = errors[which][answer.set_of_unit(key_head * answer.group)];
        sum = {std::max(sum.max, part.max), sum.squares + part.squares, sum.elements + part.elements};
      }
    }
  }
  for (size_t which = 0; which < GRADIENTS; ++which) {
    for (const Errors& each : errors[which]) {
      reference.answers[which].baseline.push_back(
          {each.max, std::sqrt(each.squares / static_cast<double>(std::max<int64_t>(each.elements, 1)))});
    }
  }
  return reference;
}

Spec of_heads(const Spec& spec, int key_heads) {
  Spec few = forward().of_heads(forward_of(spec), key_heads);
  few.formula = spec.formula;
  return few;
}

// Those of the forward pass, and functions of scores where heads share keys and sequences have lengths of their own: a slope and a
// sink are of a head of queries, and distances of a sequence. And intervals of keys, read by keys.
std::vector<Spec> trials(const Accepts& accepts, const Spec& usual) {
  std::vector<Spec> specs = forward().trials(accepts, forward_of(usual));
  const std::pair<uint32_t, const char*> asked[] = {
      {SOFTCAP | VARLEN | TAILS | GROUPED, "b=3 h=4 kv=2 n=200 softcap=5 lens_q=150,1,77 lens_k=200,64,0"},
      {ALIBI | GROUPED, "b=2 h=6 kv=2 n=256 alibi"},
      {ALIBI | VARLEN | TAILS | WINDOW, "b=3 h=2 nq=200 nk=300 alibi window=100,20 lens_q=200,1,77 lens_k=300,7,200"},
      {SINK | VARLEN | TAILS | CAUSAL | GROUPED, "b=3 h=8 kv=2 n=200 causal sink lens_q=150,1,77 lens_k=200,64,70"},
      {SINK | WINDOW | TAILS | CROSS | CAUSAL, "h=4 nq=300 nk=200 causal window=40,0 sink"},
      // More tiles of 64 queries than a warp has lanes: the first and the 33rd see the same keys, and none between them.
      {INTERVALS | TAILS | CROSS, "nq=2200 nk=300 intervals=64*0:100,1984*9:9,64*90:130,88*250:300"}};
  Spec plain;
  plain.d = usual.d, plain.softmax_scale = usual.softmax_scale;
  plain.q_type = usual.q_type, plain.kv_type = usual.kv_type, plain.o_type = usual.o_type;
  for (const auto& [features, words] : asked) {
    if ((features & ~accepts.features) == 0) specs.push_back(parse_spec(words, plain).value());
  }
  for (Spec& each : specs) each.formula = usual.formula;
  return specs;
}

const FormulaRegistration registration(
    {.name = "backward",
     .inputs = inputs,
     .outputs = outputs,
     .work = work,
     .io_model = io_model,
     .make_inputs = make_backward_inputs,
     .complete = leave_what_forward_leaves,
     .together = {"Q", "K", "V", "O", "LSE"},
     .cells = cells,
     .make_reference = make_gradients,
     .odd_input = "dO",
     .odd_outputs = {"dQ", "dK", "dV", "dsinks"},
     .of_heads = of_heads,
     // Not those whose scores or values leave what f32 or f16 can tell apart: there the errors of all kernels are a matter of luck.
     .kinds = {InputKind::normal, InputKind::large_logits, InputKind::peaky, InputKind::one_hot, InputKind::constant_v,
               InputKind::sinks, InputKind::negative_rows, InputKind::ties, InputKind::creeping_max,
               InputKind::giant_keys, InputKind::trained, InputKind::nan_head},
     .trials = trials});

}  // namespace
}  // namespace ladder
