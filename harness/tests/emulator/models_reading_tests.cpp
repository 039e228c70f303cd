// models/reading.cuh, with which the chapter on models begins, is judged as a rung is.
#include "models/reading.cuh"

#include "harness/problem/problem.hpp"
#include "harness/problem/spec.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"

using namespace ladder;

TEST_CASE("the reading copy of what models ask for is right", "[emulator]") {
  Rung rung;
  rung.name = "99_reading";
  Variant variant;
  variant.label = "one warp a query";
  variant.accepts = {
      .features = CAUSAL | TAILS | CROSS | GROUPED | WINDOW | SOFTCAP | ALIBI | SINK | STRIDES | VARLEN | INTERVALS,
      .q = Element::bf16,
      .kv = Element::bf16,
      .o = Element::bf16};
  variant.writes_lse = true;
  variant.on_emulator = run;
  rung.variants.push_back(variant);
  for (const char* words :
       {"", "nq=60 causal", "kv=2 layout=bnhd pad=16", "window=7,3", "causal window=9,0 sink", "softcap=20",
        "alibi causal", "causal documents=3", "scattered=2", "prefix=9", "lens_q=5,0,40 lens_k=60,7,30 causal"}) {
    const auto spec = parse_spec(std::string("bf16 ") + words, {.heads = 4, .n = 40, .n_k = 56});
    INFO(words << (spec ? "" : ": " + spec.error().message));
    REQUIRE(spec);
    for (const InputKind kind : {InputKind::normal, InputKind::large_logits, InputKind::sinks}) {
      const CheckResult result = check_on_emulator(rung, rung.variants.front(), make_problem(*spec, kind, 1));
      for (const Failure& failure : result.failures) {
        // Of a sequence that is not the longest some warps have no query, which a rung would predict.
        if (spec->lens_q.count > 0 && failure.message.starts_with("blocks: 300 of 480 have written nothing")) continue;
        FAIL_CHECK(failure.message);
      }
    }
  }
}
