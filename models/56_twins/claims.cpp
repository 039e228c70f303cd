#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(int heads, int kv_heads, bool causal, int n = 1000) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .n = n,
          .d = 128,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("without a mask, and without twins, every count is as before, and every bit of O") {
  for (const Spec& spec : {spec_of(4, 2, false, 500), spec_of(3, 1, true, 500), spec_of(2, 2, true, 500)}) {
    CHECK(but_for(counts_of(counted(rung(), spec)), {&Counts::unused_smem_bytes}) ==
          but_for(counts_of(counted(previous(), spec)), {&Counts::unused_smem_bytes}));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM("twins walk together: no tile of keys is copied that one of the two lets pass") {
  const Spec spec = spec_of(4, 2, true);
  // Two pairs of heads; queries once, and for each of eight tiles of them the keys and values up to its own, once for both.
  const uint64_t keys = 128 * (1 + 2 + 3 + 4 + 5 + 6 + 7) + 1000;
  CHECK(counted(rung(), spec).gmem_bytes_read == (4 * 1000 + 2 * 2 * keys) * 128 * 2);
  CHECK(counted(rung(), spec).multicast_bytes < counted(previous(), spec).multicast_bytes);
}

CLAIM("the block that has most to do has less of it") {
  // On 16 multiprocessors each has two rounds, as with 32 heads on 132.
  const Problem& twins = problem(spec_of(4, 2, true));
  const auto run = [&](const Rung& rung) {
    return run_on_emulator(rung, rung.variants[0], twins, {.multiprocessors = 16});
  };
  const EmulatorRun now = run(rung()), before = run(previous());
  CHECK(now.counters.products_of_busiest_block < before.counters.products_of_busiest_block);
  CHECK(std::ranges::equal(now.outputs["O"].half(), before.outputs["O"].half(), {}, &f16::bits, &f16::bits));
}

CLAIM("of 96 columns products end there, and give the bits that those of 128 give") {
  Spec spec = spec_of(3, 1, true, 500);
  spec.d = 96;
  const Variant& narrow = rung().variants[2];
  const auto now = counted(rung(), narrow, spec), before = counted(previous(), spec);
  CHECK(now.wgmma * 8 == before.wgmma * 7);  // QK takes 6 of 8 slices of d, and PV all 8 of keys
  CHECK(same_bits(checked(rung(), narrow, spec), checked(previous(), spec)));
}
