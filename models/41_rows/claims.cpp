#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "where both take a problem, every count but that of copies and of log-sum-exps is as before, and every bit of O") {
  for (const bool causal : {false, true}) {
    const Spec spec{.batch = 1,
                    .heads = 3,
                    .n = 512,
                    .d = 128,
                    .causal = causal,
                    .q_type = Element::bf16,
                    .kv_type = Element::bf16,
                    .o_type = Element::bf16};
    const std::initializer_list<emulator::CountOf> others = {&Counts::bulk_copies, &Counts::gmem_accesses,
                                                             &Counts::gmem_bytes_written};
    CHECK(but_for(counts_of(counted(rung(), spec)), others) == but_for(counts_of(counted(previous(), spec)), others));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
