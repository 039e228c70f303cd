// Queries and keys as a trained model has them: four heads of a small language model, one of each layer, that read 2048
// bytes of this repository (tools/trained, docs/trained.md).
#pragma once
#include <array>
#include <cstdint>

namespace ladder {

constexpr int TRAINED_HEADS = 4, TRAINED_COLUMNS = 128;

// The query or key of the token at `position`, of head `head` modulo those that there are. `row` comes filled with
// N(0, 1): what the file does not keep of a token scatters by it. Any position: a longer text repeats its tokens.
void make_trained_row(int64_t head, bool is_key, int64_t position, std::array<float, TRAINED_COLUMNS>& row);

}  // namespace ladder
