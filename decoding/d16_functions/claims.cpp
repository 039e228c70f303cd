#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec few_queries(int batch, int n_k) {
  return {.batch = batch,
          .heads = 4,
          .kv_heads = 1,
          .n = 1,
          .n_k = n_k,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM(
    "a function asks for no product and no byte of a key more; a sink is read once for each row, though there are four "
    "shares") {
  const Spec plain = few_queries(1, 512);
  const auto of = [&](auto change) {
    Spec spec = plain;
    change(spec);
    return counted(rung(), spec);
  };
  const auto before = counted(rung(), plain);
  const auto capped = of([](Spec&spec) { spec.softcap = 50; }), sunk = of([](Spec&spec) { spec.sink = true; });
  CHECK(capped.mma == before.mma);
  CHECK(capped.gmem_bytes_read == before.gmem_bytes_read);
  CHECK(capped.exponentials > before.exponentials);
  CHECK(sunk.gmem_bytes_read ==
        before.gmem_bytes_read + 4 * 32 * sizeof(float));  // a warp for each row, and its lanes alike
}
