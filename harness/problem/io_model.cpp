#include "harness/problem/io_model.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ladder {
namespace {

// Room for 2 bytes of every score; anything smaller holds something else.
bool keeps_scores(const Variant& variant, const Shape& shape) {
  return double(variant.workspace_at(shape)) >= 2.0 * double(shape.batch_heads()) * shape.n * shape.n;
}

}  // namespace

double io_model_bytes(const Stage&, const Variant& variant, const Shape& shape) {
  const double n = shape.n, nd = n * shape.d, heads = static_cast<double>(shape.batch_heads());
  if (keeps_scores(variant, shape)) return heads * (8 * nd + (shape.causal ? 2 * n * (n + 1) : 4 * n * n));
  const double query_tiles = n / std::max(1, variant.tile.br);
  return heads * (4 * nd + (shape.causal ? 2 * nd * (query_tiles + 1) : 4 * nd * query_tiles)) +
         2 * double(variant.workspace_at(shape));
}

std::string io_model_formula(const Stage&, const Variant& variant, const Shape& shape) {
  if (keeps_scores(variant, shape)) return shape.causal ? "8nd + 2n (n + 1)" : "8nd + 4n^2";
  const int br = std::max(1, variant.tile.br);
  return fmt::format(fmt::runtime(shape.causal ? "4nd + 2nd (n/{} + 1){}" : "4nd + 4n^2 d / {}{}"), br,
                     variant.workspace_at(shape) > 0 ? " + 2 of the workspace" : "");
}

}  // namespace ladder
