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
// The same with keys and values of other numbers.
inline ladder::Spec cache(int batch, int n_k, ladder::Element numbers) {
  ladder::Spec spec = cache(batch, n_k);
  spec.kv_type = numbers;
  return spec;
}

// Of numbers of four bits: each key's scale, V's as the next key's of K, and what each number is, if it is not as it was.
template <class Scale, class Number>
void judge_numbers(int heads, const Scale& scale, const Number& number, float softmax_scale) {
  using namespace ladder;
  Shape shape{.batch = 1, .heads = heads, .n = 130, .d = 128, .softmax_scale = softmax_scale};
  shape.q_type = shape.o_type = Element::bf16, shape.kv_type = Element::s4;
  Problem problem = make_question(shape, std::vector{InputKind::normal}, 1);
  for (const char* const name : {"K", "V"}) {
    Tensor &numbers = problem.inputs[name], &scales = problem.inputs[name[0] == 'K' ? "K_scales" : "V_scales"];
    for (int64_t i = 0; i < numbers.spec().elements(); ++i) {
      if (const double given = number(i); !std::isnan(given)) numbers.set(i, given);
    }
    for (int64_t key = 0; key < scales.spec().elements(); ++key) scales.set(key, scale(key + (name[0] == 'V')));
  }
  const CheckResult result = claims::judged(rung(), problem);
  INFO(claims::reasons(result));
  CHECK(result.answers_right());
}
