// backward/reading.cuh, with which the chapter on gradients begins, is judged as a rung is.
#include "backward/reading.cuh"

#include <initializer_list>

#include "harness/problem/problem.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"

using namespace ladder;

TEST_CASE("the reading copy of the gradients is right", "[emulator]") {
  Rung rung;
  rung.name = "99_reading";
  Variant variant;
  variant.label = "one warp a row";
  variant.accepts = {.features = CAUSAL | CROSS | TAILS, .formula = "backward"};
  variant.workspace_bytes = [](const Shape& shape) {
    return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 1) * sizeof(float);
  };
  variant.on_emulator = run;
  rung.variants.push_back(variant);
  for (const bool causal : {false, true}) {
    const Spec spec{.formula = "backward", .heads = 2, .n = 40, .n_k = 56, .causal = causal};
    for (const InputKind kind : {InputKind::normal, InputKind::large_logits, InputKind::sinks}) {
      const CheckResult result = check_on_emulator(rung, rung.variants.front(), make_problem(spec, kind, 1));
      INFO((result.failures.empty() ? "" : result.failures.front().message));
      CHECK(result.ok);
    }
  }
}
