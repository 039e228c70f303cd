// For a claims.cpp of decoding, in the namespace of its rung, and so without a guard: bf16, four heads of queries over one.
inline ladder::Spec one_query(int batch, int n_k) {
  return {.batch = batch,
          .heads = 4,
          .kv_heads = 1,
          .n = 1,
          .n_k = n_k,
          .q_type = ladder::Element::bf16,
          .kv_type = ladder::Element::bf16,
          .o_type = ladder::Element::bf16};
}
// With n_k keys at most, in one piece: as many as its sequence has, each.
inline ladder::Spec cache(int batch, int n_k) {
  ladder::Spec spec = one_query(batch, n_k);
  spec.page = -1;
  return spec;
}
