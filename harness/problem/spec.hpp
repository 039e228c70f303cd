// A problem as one line of text, the same on the command line, in files, in tables, and for peers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// "b=2 h=32 kv=8 nq=1 nk=4096 d=128 bf16 causal window=1023,0 layout=bnhd": the sizes, and what is not as usual.
std::string to_string(const Spec& spec);

// The text of a problem that columns of results do not say by themselves: batch, heads, n, d and a causal mask, in f16. Empty
// for one that they do.
std::string beyond_columns(const Spec& spec);

// The problem that the text makes of another one, which has what it leaves out: but kv heads bring twice as many heads along
// where those are no multiple, and lengths their number and the longest. An error names the word, and what it could
// have been (usage).
Result<Spec> parse_spec(std::string_view text, const Spec& from = {});

// The words of a text that say a size or a feature, without their values: {"kv", "nq", "bf16", "causal"}.
std::vector<std::string> words_of(std::string_view text);

}  // namespace ladder
