#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class T, int WARPS = 8>
ladder::Variant variant(ladder::Variant rest = {}) {
  using C = Config<T, 16, 32, WARPS, 4>;
  rest = ladder::decoding::of_bits<C>(std::move(rest), ladder::Element::s4, 32);
  rest.workspace_bytes =
      ladder::decoding::workspace_of_tile<C, decoding::shares_of<C>, decoding::shares_of<typename C::Wide>,
                                          decoding::MOST_SHARES>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::predict_packed<C, 64>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "d17_nibbles",
    .previous = "d13_bytes",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Of four bits all fragments are others again, and scales come with the keys: they are copied, read "
                   "and multiplied with scores and weights."},
    .idea =
        "Keys and values are numbers of four bits with a scale for each key, which multiplies a column of S, or of P.",
    .limit = "d13_bytes reads a byte for each number, and of long texts reading is all that takes time.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, over the time of d06 on the same problem in bf16: "
                  "batch 8 beside 65536 keys 0.32, beside 8192 0.38, beside 1024 0.93; batch 1 beside 65536 0.40, "
                  "beside 8192 0.85, beside 1024 1.05; batch 64 beside 8192 0.31. Within 5 %. That is 3.7 TB/s of its "
                  "own bytes, 136 for a key and its value, at batch 8 beside 65536: less than d13 reads, because a "
                  "byte is two numbers to unpack, multiply and weigh. Twelve warps instead of eight: 3 % faster there.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 and bf16, lop3, sub.bf16x2, cp.async, shfl, griddepcontrol, 136 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 80, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<bf16>(), variant<f16>({.label = "f16"}), variant<bf16, 12>({.label = "12 warps"})},
});

}  // namespace
