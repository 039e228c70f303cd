// O = softmax(Q K^T * softmax_scale) V and LSE, the logarithm of the sum that it is divided by: dense, under a mask, in a window.
#include "harness/problem/formula.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "harness/problem/lists.hpp"
#include "harness/problem/spec.hpp"
#include "harness/stages/blocks.hpp"

namespace ladder {
namespace {

// Sequences one behind the other have their heads within the rows.
Layout layout_of(const Spec& spec) {
  return spec.lens_q.count > 0 ? Layout::bnhd : spec.layout;
}

std::vector<TensorSpec> forward_inputs(const Spec& spec) {
  const auto in = [&](const char* name, Element element, int64_t heads, int64_t rows, const Lengths& lengths,
                      int64_t columns) {
    const int times = columns == 1 ? 0 : name == std::string_view("V") ? 2 : 1;  // each has strides of its own
    TensorSpec made = tensor(name, element, {spec.batch, heads, rows, columns}, layout_of(spec), times * spec.pad);
    made.lengths = lengths;
    if (spec.has_cache() && name != std::string_view("Q")) {
      made.page = spec.page > 0 ? spec.page : rows;
      made.strides = tensor(name, element, {1, heads, made.page, columns}, layout_of(spec), times * spec.pad).strides;
    } else if (lengths.count > 0) {
      made.strides[0] = 0;
    }
    return made;
  };
  std::vector<TensorSpec> specs{in("Q", spec.q_type, spec.heads, spec.n, spec.lens_q, spec.d),
                                in("K", spec.kv_type, spec.key_heads(), spec.keys(), spec.lens_k, spec.d),
                                in("V", spec.v_type(), spec.key_heads(), spec.keys(), spec.lens_k, spec.d)};
  for (const char* name : {"K_scales", "V_scales"}) {
    if (spec.has_token_scales()) {
      specs.push_back(in(name, Element::f32, spec.key_heads(), spec.keys(), spec.lens_k, 1));
    } else if (spec.has_scales()) {
      const int64_t columns = spec.has_channel_scales() ? spec.d : 1;
      specs.push_back(tensor(name, Element::f32, {spec.batch, spec.key_heads(), 1, columns}));
    }
  }
  if (spec.has_Q_scales()) specs.push_back(tensor("Q_scales", Element::f32, {spec.batch, spec.heads, 1, 1}));
  if (spec.has_row_scales()) {
    specs.push_back(tensor("Q_scales", Element::f32, {spec.batch, spec.heads, spec.n, 1}));
    specs.push_back(tensor("K_scales", Element::f32, {spec.batch, spec.key_heads(), spec.keys(), 1}));
  }
  const auto fixed = [&](const char* name, Element element, int64_t count) {
    specs.push_back(tensor(name, element, {1, 1, 1, count}));
    specs.back().is_fixed = true;
  };
  for (const auto& [is_asked, name] : {std::pair{spec.alibi, "slopes"}, std::pair{spec.sink, "sinks"}}) {
    if (!is_asked) continue;
    fixed(name, Element::f32, spec.heads);
    specs.back().per_head = true;
  }
  if (spec.lens_q.count > 0) {
    fixed("cu_seqlens_q", Element::i32, spec.batch + 1);
    fixed("cu_seqlens_k", Element::i32, spec.batch + 1);
  }
  if (spec.has_cache()) fixed("cache_seqlens", Element::i32, spec.batch);
  if (spec.page > 0) fixed("block_table", Element::i32, spec.batch * specs[1].pages());
  if (spec.intervals) {
    for (const char* name : {"first", "end"}) fixed(name, Element::i32, int64_t{spec.batch} * spec.n);
  }
  if (spec.blocks) {
    const int64_t tiles = blocks::Tile::count(spec), most = blocks::Tile::of_keys(spec);
    for (const auto& [name, numbers] : {std::pair{"lists", 2 * most}, {"counts", int64_t{2}}, {"order", int64_t{1}}}) {
      specs.push_back(tensor(name, Element::i32, {spec.batch, spec.heads, tiles, numbers}));
      specs.back().is_fixed = true;
    }
    fixed("stencils", Element::i32, std::ssize(block_lists(spec)->stencils));
  }
  return specs;
}

std::vector<TensorSpec> forward_outputs(const Spec& spec) {
  TensorSpec O = tensor("O", spec.o_type, {spec.batch, spec.heads, spec.n, spec.d}, layout_of(spec), 3 * spec.pad);
  TensorSpec LSE = tensor("LSE", Element::f32, {spec.batch, spec.heads, spec.n, 1});
  O.lengths = LSE.lengths = spec.lens_q;
  if (spec.lens_q.count > 0) {
    O.strides[0] = 0;
    LSE.strides = {0, spec.lens_q.before(spec.batch), 1};
  }
  LSE.is_optional = true;
  return {O, LSE};
}

Cells forward_cells(const Spec& spec) {
  return Cells(2, choose_cells(spec));
}

Reference forward_reference(const Spec& spec, const Tensors& inputs, const Cells& cells, size_t sets,
                            bool with_score_terms) {
  return make_reference(spec, inputs, cells.front(), sets, with_score_terms ? Beside::score_terms : Beside::errors);
}

Spec of_heads(const Spec& spec, int key_heads) {
  Spec few = spec;
  few.batch = 1;
  few.heads = key_heads * (spec.heads / spec.key_heads());
  if (spec.kv_heads > 0) few.kv_heads = key_heads;
  few.layout = Layout::bhnd;
  few.pad = 0;
  return few;
}

// FlashAttention's convention: two products of n * n * d multiply-adds in each head, half of it under a causal mask.
// Counting the softmax too, as the write-up does, adds 1.17 % at d = 128.
// Where lengths differ, a window is open or queries have intervals or lists, of the keys that are seen.
double flops_by_convention(const Spec& spec) {
  const bool square = spec.keys() == spec.n && spec.lens_q.count == 0 && spec.lens_k.count == 0;
  if (square && spec.left < 0 && spec.right < 0 && !spec.has_listed_keys()) {
    return 4.0 * static_cast<double>(spec.elements()) * spec.n / (spec.causal ? 2 : 1);
  }
  double seen = 0;
  for (int64_t sequence = 0; sequence < spec.batch; ++sequence) {
    const int64_t queries = spec.lens_q.count > 0 ? spec.lens_q.of[sequence] : spec.n;
    for (int64_t query = 0; query < queries; ++query) {
      for_each_run_of_keys(spec, sequence, query, [&](const Keys& run) { seen += static_cast<double>(run.size()); });
    }
  }
  return 4.0 * seen * spec.heads * spec.d;
}

// Few queries beside many keys are bound by reading these, if no L2 cache holds a part worth speaking of: cards multiply 100 to 300 times
// in the time of a byte.
Work forward_work(const Spec& spec) {
  constexpr double FEW_FLOPS = 32, BEYOND_L2 = 0x1p30;            // for each byte; bytes
  const std::vector<TensorSpec> outputs = forward_outputs(spec);  // without LSE
  Work work{.flops = flops_by_convention(spec),
            .bytes = bytes_of_rows(forward_inputs(spec)) + bytes_of_rows(std::span(outputs).first(1))};
  if (work.flops < FEW_FLOPS * work.bytes && work.bytes >= BEYOND_L2) work.bound = Work::Bound::reads;
  return work;
}

// Per head, with n rows of d elements of 2 bytes:
//   scores kept in global memory: Q, K, V read and O written once, 8nd; n^2 scores of 2 bytes written and read once, 4n^2.
//   tiles of b_q queries: Q read and O written once, 4nd; each of the n / b_q query tiles reads all of K and V, 4nd
//   bytes: 4n^2 d / b_q. Causal, a tile stops at its own last query: 2nd (n / b_q + 1) instead; and only n (n + 1) / 2
//   scores exist. A workspace that holds anything else is written once and read once besides.
// A variant without tiles that keeps no scores is taken as b_q = 1. Caches are not part of the model: what K and V tiles
// find in L2 does not come from DRAM, which is where measurements part from it.
IoModel forward_io(const Variant& variant, const Spec& spec) {
  const double n = spec.n, nd = n * spec.d, heads = static_cast<double>(spec.batch_heads());
  if (variant.stores_scores) {
    return {heads * (8 * nd + (spec.causal ? 2 * n * (n + 1) : 4 * n * n)),
            spec.causal ? "8nd + 2n (n + 1)" : "8nd + 4n^2"};
  }
  const int br = std::max(1, variant.tile.br);
  const double workspace = static_cast<double>(variant.workspace_at(spec));
  return {heads * (4 * nd + (spec.causal ? 2 * nd * (n / br + 1) : 4 * nd * n / br)) + 2 * workspace,
          fmt::format(fmt::runtime(spec.causal ? "4nd + 2nd (n/{} + 1){}" : "4nd + 4n^2 d / {}{}"), br,
                      workspace > 0 ? " + 2 of the workspace" : "")};
}

// Each feature by itself, then all of the variant's at once.
std::vector<Spec> trials(const Accepts& accepts, const Spec& usual) {
  struct Asked {
    uint32_t features;
    const char* words;
  };
  const Asked asked[] = {
      {TAILS, "n=1"},
      {TAILS, "n=129"},
      {TAILS | CROSS, "nq=1 nk=131"},
      {TAILS | CROSS | CAUSAL, "h=2 nq=3 nk=0 causal"},
      {TAILS | CROSS | CAUSAL, "h=2 nq=203 nk=113 causal"},
      {TAILS | CROSS | CAUSAL, "nq=331 nk=300 causal"},  // a tile of keys meets the diagonal in more tiles of queries
      {TAILS | CROSS | CAUSAL, "nq=1 nk=256 causal"},
      {TAILS | CROSS | CAUSAL, "h=2 nq=257 nk=512 causal"},
      // The diagonal just before the corner of a tile of 64, 128 or 192 queries, and just behind.
      {TAILS | CROSS | CAUSAL, "nq=256 nk=258 causal"},
      {TAILS | CROSS | CAUSAL, "nq=384 nk=385 causal"},
      {TAILS | CROSS | CAUSAL, "nq=257 nk=256 causal"},
      {TAILS | CROSS | CAUSAL, "nq=258 nk=256 causal"},
      {CROSS, "nq=64 nk=256"},
      {CROSS | CAUSAL, "nq=64 nk=256 causal"},
      {CROSS | CAUSAL, "h=2 nq=256 nk=64 causal"},  // the first queries see no key
      {GROUPED, "h=22 kv=2 n=128"},                 // groups of more than eight
      {GROUPED | CAUSAL, "b=2 h=5 kv=1 n=128 causal"},
      {GROUPED | CAUSAL, "h=6 kv=2 n=128 causal"},  // an odd number that share, an even one in all
      {GROUPED | CAUSAL, "h=4 kv=1 n=384 causal"},
      // As in most models, by fours and eights, of several heads of keys.
      {GROUPED, "h=32 kv=8 n=128"},
      {GROUPED | CAUSAL, "h=16 kv=2 n=128 causal"},
      {GROUPED, "b=2 h=8 kv=1 n=128"},
      {WINDOW, "n=256 window=40,17"},
      {WINDOW | CAUSAL, "n=384 causal window=130,0"},
      {WINDOW | CAUSAL, "n=128 causal window=0,0"},
      // That begin, and end, with a tile.
      {WINDOW | CAUSAL, "n=512 causal window=255,0"},
      {WINDOW, "n=768 window=255,256"},
      // No end on one side, where the other tensor is the longer one.
      {WINDOW | TAILS | CROSS, "h=2 nq=203 nk=70 window=9,-1"},
      {WINDOW | TAILS | CROSS, "h=2 nq=64 nk=300 window=-1,20"},
      // Ends that lie further away than an int can say of a query beyond the first.
      {WINDOW | TAILS | CROSS, "h=2 nq=203 nk=70 window=2147483647,2147483647"},
      // Tiles of keys on both sides of what a tile of queries sees.
      {WINDOW | TAILS | CROSS, "h=2 nq=200 nk=900 window=130,60"},
      {WINDOW | TAILS | CROSS | GROUPED | CAUSAL, "h=4 kv=2 nq=200 nk=700 causal window=70,0"},
      {SOFTCAP, "n=128 softcap=3"},
      {SOFTCAP, "h=4 n=128 softcap=20 scale=0.25"},  // of which the largest scores are half
      {ALIBI, "h=3 n=256 alibi"},
      {SINK, "h=3 n=128 sink"},
      {SOFTCAP | CAUSAL, "h=2 n=256 causal softcap=2"},
      {SOFTCAP | CAUSAL, "n=512 causal softcap=50"},  // of which scores may be a small part
      {ALIBI | CROSS, "h=2 nq=64 nk=256 alibi"},
      // A query's own key lies anywhere in a tile, and keys on both sides of it.
      {ALIBI | TAILS | CROSS, "h=2 nq=235 nk=300 alibi"},
      {ALIBI | TAILS | CROSS,
       "h=1 nq=3 nk=33100 alibi"},  // beyond 32768: a single head's slope favours the furthest keys
      {SINK | TAILS | CROSS | CAUSAL, "h=2 nq=203 nk=113 causal sink"},
      {SINK | TAILS | CROSS | CAUSAL, "h=2 nq=3 nk=0 causal sink"},
      {STRIDES, "b=2 h=3 n=128 layout=bnhd"},
      {STRIDES, "b=2 h=3 n=128 pad=8"},
      {STRIDES | TAILS | CROSS, "b=2 h=2 nq=3 nk=0 pad=8"},
      // Documents that end within tiles, in two sequences at other places; behind one another's first keys; where a query's own key
      // lies elsewhere; none longer than a tile.
      {INTERVALS | TAILS, "b=2 h=2 n=400 documents=5"},
      {INTERVALS | TAILS | CAUSAL, "b=2 h=2 n=515 causal documents=4@3"},
      {INTERVALS | TAILS | CROSS | CAUSAL, "h=2 nq=203 nk=500 causal documents=3"},
      {INTERVALS | TAILS | CROSS, "h=2 nq=300 nk=140 documents=3@2"},
      {INTERVALS | TAILS | CAUSAL, "n=300 causal documents=90"},
      {INTERVALS | TAILS | CROSS, "h=2 nq=200 nk=700 prefix=300"},
      {INTERVALS | TAILS, "h=2 n=450 documents=3@5 prefix=40"},
      {INTERVALS | TAILS | WINDOW, "n=450 window=90,30 documents=3@5"},
      // At the edges of tiles, and next to them; in the middle of a tile of queries the least first key and the greatest last one.
      {INTERVALS, "n=512 intervals=127*0:128,1*0:129,1*127:256,127*128:256,128*128:384,100*256:512,28*255:511"},
      {INTERVALS, "n=512 intervals=50*200:220,1*3:5,77*190:240,60*100:120,1*508:511,67*130:140,256*255:385"},
      // Intervals that overlap, each with the one before.
      {INTERVALS, "n=384 intervals=64*0:150,64*60:210,64*120:270,64*180:330,64*240:384,64*300:384"},
      // Tiles of queries without a key: the first, one between others, the last; and before and behind all keys.
      {INTERVALS, "h=2 n=640 intervals=128*5:5,128*0:640,128*640:900,128*100:130,128*-9:0"},
      {INTERVALS, "h=2 n=384 intervals=130*0:0,1*7:9,253*384:384"},
      // Some rows without a key among others, and one without one among those that see all.
      {INTERVALS, "n=384 intervals=100*0:200,28*90:20,63*0:384,1*44:44,64*0:384,64*300:384,60*9:9,4*0:1"},
      {INTERVALS, "h=2 n=256 intervals=100*77:78,28*0:1,127*255:256,1*128:129"},  // one key
      {INTERVALS,
       "n=384 intervals=64*-2147483647:2147483647,64*400:500,64*-50:-3,64*-5:10,64*2147483647:-2147483647,64*380:999"},
      {INTERVALS | TAILS, "b=3 h=2 n=333 scattered=11"},
      {INTERVALS | TAILS | CROSS, "b=2 h=2 nq=300 nk=900 scattered=5"},
      // One query of 128 alone sees more than the others: in each quarter of them.
      {INTERVALS | TAILS | CROSS,
       "b=4 h=1 nq=128 nk=871 "
       "intervals=10*68:310,1*0:871,157*68:310,1*0:871,157*68:310,1*0:871,157*68:310,1*0:871,27*68:310"},
      {INTERVALS | TAILS | CROSS | CAUSAL | GROUPED, "b=2 h=4 kv=2 nq=400 nk=300 causal scattered=3"},
      {INTERVALS | TAILS | CROSS, "h=2 nq=3 nk=0 scattered=3"},
      // Lists of whole blocks: most keys, few, none; of 64 keys an odd number; under a mask, where lengths differ, in two sequences.
      {BLOCKS, "h=2 n=1024 blocks=0.7@3"},
      {BLOCKS, "h=2 n=1024 blocks=0.1@5"},
      {BLOCKS, "n=256 blocks=0.001@1"},
      {BLOCKS, "h=2 n=1024 blocks=0.4@2 block_keys=64"},
      {BLOCKS, "h=2 n=512 blocks=1 block_keys=64"},
      {BLOCKS | CAUSAL, "h=2 n=1024 causal blocks=0.5@8"},
      {BLOCKS | CAUSAL, "h=2 n=640 causal blocks=0.6@8 block_keys=64"},
      {BLOCKS | TAILS | CROSS | CAUSAL | GROUPED, "b=2 h=4 kv=2 nq=300 nk=1000 causal blocks=0.5@4"},
      {BLOCKS | TAILS | CROSS | CAUSAL,
       "b=2 h=2 nq=500 nk=300 causal blocks=0.7@6 block_keys=64"},  // the first queries see no key
      {BLOCKS | TAILS | CROSS, "b=2 h=2 nq=77 nk=65 blocks=0.8@2 block_keys=64"},
      {BLOCKS | TAILS | CROSS, "h=3 nq=1 nk=700 blocks=0.5@7"},
      {BLOCKS | TAILS | CROSS, "h=2 nq=300 nk=1 blocks=0.5@2"},  // one key
      {BLOCKS | TAILS | CROSS, "h=2 nq=300 nk=0 blocks=0.5@2"},
      // Blocks in part: some, all, beside whole ones of 64 keys in a tile, under a mask.
      {BLOCKS, "h=2 n=768 blocks=0.6@3 partial=0.4"},
      {BLOCKS, "h=2 n=512 blocks=0.5@6 partial=1"},
      {BLOCKS, "h=2 n=768 blocks=0.5@9 partial=0.5 block_keys=64"},
      {BLOCKS | TAILS, "b=2 h=2 n=515 blocks=0.4@11 partial=0.5 block_keys=64"},
      {BLOCKS | TAILS | CAUSAL, "b=2 h=1 n=900 causal blocks=0.4@12 partial=0.3"},
      // In part because of what queries see otherwise: a row or two of a tile at first, and rows without a key.
      {BLOCKS | INTERVALS | TAILS, "b=2 h=2 n=600 documents=5 blocks=0.7@3"},
      {BLOCKS | WINDOW | CAUSAL, "n=1024 causal window=300,0 blocks=0.6@2"},
      {VARLEN | TAILS, "b=4 h=2 n=200 lens_q=200,1,0,77 lens_k=200,64,5,0"},
      {VARLEN | TAILS | CAUSAL, "b=3 h=2 n=200 causal lens_q=150,1,77 lens_k=200,64,70"},
      // Less to do than lengths that are all alike would make, and than there are SMs.
      {VARLEN | TAILS, "b=3 h=1 n=90 lens_q=0,90,0 lens_k=7,80,0"},
      {VARLEN | TAILS | WINDOW, "b=3 h=2 nq=200 nk=700 lens_q=200,1,77 lens_k=700,300,300 window=100,20"},
      // A tile of queries each, of which those begin that have most to do.
      {VARLEN | TAILS, "b=5 h=1 nq=100 nk=640 lens_q=100,90,80,70,60 lens_k=380,640,100,500,250"},
      // Sequences that use none of their room, one key of it, or all; pages that begin and end with tiles, and lie within them.
      {CACHE | TAILS | CROSS, "b=4 h=2 nq=1 nk=300 cache lens_k=300,0,1,77"},
      {CACHE | TAILS | CROSS | GROUPED, "b=3 h=8 kv=2 nq=2 nk=1000 cache lens_k=128,999,640"},
      {CACHE | TAILS | CROSS | CAUSAL | STRIDES, "b=3 h=2 nq=5 nk=200 cache lens_k=3,200,131 causal layout=bnhd pad=8"},
      {CACHE | TAILS | CROSS | CAUSAL | WINDOW, "b=2 h=1 nq=3 nk=700 cache lens_k=700,300 causal window=100,0"},
      {CACHE | TAILS | CROSS, "b=2 h=2 nq=3 nk=0 cache"},
      {CACHE | PAGES | TAILS | CROSS | GROUPED, "b=4 h=8 kv=2 nq=1 nk=1000 pages=16 lens_k=1000,0,17,500 layout=bnhd"},
      {CACHE | PAGES | TAILS | CROSS, "b=3 h=2 nq=1 nk=600 pages=64 lens_k=64,65,600"},
      {CACHE | PAGES | TAILS | CROSS | CAUSAL, "b=2 h=2 nq=4 nk=300 pages=1 lens_k=300,41 causal layout=bnhd"},
      {CACHE | PAGES | TAILS | CROSS, "b=2 h=2 nq=1 nk=500 pages=24 lens_k=500,260"},
      {CACHE | PAGES | TAILS | CROSS, "b=2 h=2 nq=1 nk=2000 pages=256 lens_k=257,1900 layout=bnhd pad=8"},
      {CACHE | PAGES | TAILS | CROSS | CAUSAL | WINDOW,
       "b=2 h=2 nq=2 nk=900 pages=128 lens_k=900,350 causal window=130,0"},
      // Pages further away than 32 bits can say.
      {CACHE | PAGES | TAILS | CROSS | STRIDES, "b=2 h=1 nq=1 nk=96 pages=16 lens_k=96,50 pad=23000000"},
      // More rows than 16 bits can number before the others, which see none of them; and many sequences.
      {VARLEN | TAILS, "b=4 h=1 nq=66003 nk=65999 lens_q=66003,0,77,5 lens_k=0,65999,70,3"},
      {VARLEN | TAILS, "b=303 h=1 n=9 lens_q=9,150*0,4,150*0,9 lens_k=9,150*0,7,150*0,3"}};
  const Spec plain{.d = usual.d,
                   .softmax_scale = usual.softmax_scale,
                   .q_type = usual.q_type,
                   .kv_type = usual.kv_type,
                   .o_type = usual.o_type,
                   .scales = usual.scales};
  std::vector<Spec> specs;
  std::string all = fmt::format("b=2 h={} n=256", accepts.features & GROUPED ? "4 kv=2" : "3");
  for (const auto& [features, words] : asked) {
    if ((features & ~accepts.features) == 0) specs.push_back(parse_spec(words, plain).value());
  }
  const std::pair<uint32_t, const char*> together[] = {
      {CAUSAL, "causal"}, {WINDOW, "window=70,0"},        {SOFTCAP, "softcap=5"},     {ALIBI, "alibi"},
      {SINK, "sink"},     {STRIDES, "layout=bnhd pad=8"}, {INTERVALS, "documents=3"}, {BLOCKS, "blocks=0.6@3"}};
  int features = 0;
  for (const auto& [feature, words] : together) {
    if ((accepts.features & feature) == 0 || (feature == WINDOW && (accepts.features & CAUSAL) == 0)) continue;
    all += fmt::format(" {}", words);
    ++features;
  }
  if (features > 1 && !specs.empty()) specs.push_back(parse_spec(all, plain).value());
  return specs;
}

// clang-format off
using enum InputKind;
const OwnTrial OWN_TRIALS[] = {
    // Each query's one key comes late or early, above the others by more than f32 has exponentials of, and all stay below a quarter of
    // their cap.
    {.name = "far below the cap", .mistake = "a cap that stands for a maximum", .needs = SOFTCAP, .tiles = 4, .text = "softcap=1000",
     .kinds = {one_hot}, .scale = 3},
    // The largest score of a tile is anything from a quarter of its cap to a half.
    {.name = "parts of the cap", .mistake = "up to some part of the cap another way", .needs = SOFTCAP, .tiles = 1, .heads = 8,
     .text = "softcap=40", .kinds = {sinks}},
    // A few keys are far beyond what others' scores are beside their cap. In another head all are, on the negative side.
    {.name = "keys far beyond the cap", .mistake = "what a kernel does for such keys, done in other tiles", .needs = SOFTCAP | CROSS,
     .text = "b=1 h=2 nq=128 nk=2048 softcap=50", .kinds = {giant_keys, negative_rows}},
    // All scores of a head are.
    {.name = "about minus the cap", .mistake = "a shorter way for small scores that forgets the sign", .needs = SOFTCAP, .tiles = 4,
     .change = [](Spec& spec) { spec.softcap = 12 * std::sqrt(static_cast<float>(spec.d)); }, .kinds = {negative_rows}, .ends_only = true},
    // Of a block that takes one tile of queries after the other the heads and sequences are others, and intervals are of sequences.
    {.name = "documents in turns", .mistake = "intervals, or rows, of the tile of queries before, or of another sequence", .needs = INTERVALS | TAILS,
     .text = "b=3 h=7 n=300 documents=3@9", .kinds = {normal, peaky, sinks}, .multiprocessors = 5, .both_builds = true},
    {.name = "many heads in turns", .mistake = "a head or a tile of queries that is nobody's, where heads take turns", .needs = INTERVALS | TAILS,
     .text = "b=2 h=19 n=130 causal documents=2", .multiprocessors = 7},
    {.name = "keys that nobody sees", .mistake = "what lies in a tile of keys that no query of a tile sees", .needs = INTERVALS,
     .text = "b=1 h=2 n=768 intervals=384*0:256,384*512:768", .kinds = {nan_unseen}, .both_builds = true},
    {.name = "lists in turns", .mistake = "the list of another tile of queries, or of another sequence", .needs = BLOCKS | TAILS,
     .text = "b=3 h=7 n=700 blocks=0.5@9 partial=0.3", .kinds = {normal, peaky, sinks}, .multiprocessors = 5, .both_builds = true},
    {.name = "many lists", .mistake = "more lists than a warp has lanes", .needs = BLOCKS | TAILS | CROSS,
     .text = "b=1 h=1 nq=4300 nk=130 blocks=0.7@3"},
    {.name = "lists in any order", .mistake = "blocks that are taken for sorted, as those of a third sequence are not", .needs = BLOCKS,
     .text = "b=3 h=1 n=512 blocks=0.8@3"},
    {.name = "blocks that nobody sees", .mistake = "what lies in a block that is in no list", .needs = BLOCKS,
     .text = "b=1 h=2 n=1024 blocks=0.15@4", .kinds = {nan_unseen}, .both_builds = true}};
// clang-format on

const FormulaRegistration registration({.name = "forward",
                                        .inputs = forward_inputs,
                                        .outputs = forward_outputs,
                                        .work = forward_work,
                                        .io_model = forward_io,
                                        .make_inputs = make_inputs,
                                        .cells = forward_cells,
                                        .make_reference = forward_reference,
                                        .odd_input = "V",
                                        .odd_outputs = {"O"},
                                        .of_heads = of_heads,
                                        .is_attention = true,
                                        .trials = trials,
                                        .own_trials = {std::begin(OWN_TRIALS), std::end(OWN_TRIALS)}});

}  // namespace
}  // namespace ladder
