// For a claims.cpp of gradients, in the namespace of its rung, and so without a guard: of bf16, with d columns.
inline ladder::Spec asked(const char* words, int d = 128) {
  ladder::Spec bf16{.formula = "backward", .d = d};
  bf16.q_type = bf16.kv_type = bf16.o_type = ladder::Element::bf16;
  return ladder::parse_spec(words, bf16).value();
}
