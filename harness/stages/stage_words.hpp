// The words of a stage.cu, for all compilers that read them, without the standard library: that takes longer than a kernel.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "common/attention.hpp"
#include "common/element.hpp"
#include "common/emulator/counters.hpp"
#include "common/emulator/size.hpp"

namespace ladder {

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// The order of a tensor's memory: batch, heads, rows, columns, or with the heads behind the rows.
enum class Layout : uint8_t { bhnd, bnhd };

// A word as a value.
struct Word {
  constexpr Word(const char* of) {
    for (int i = 0; i + 1 < LENGTH && of[i] != 0; ++i) text[i] = of[i];
  }
  static constexpr int LENGTH = 24;
  char text[LENGTH] = {};
  bool operator==(const Word&) const = default;
};

// The lengths of a batch's sequences, where they are not all alike. Those then lie one behind the other.
struct Lengths {
  static constexpr int MOST = 320;
  int count = 0, of[MOST] = {};
  int64_t before(int64_t sequence) const {
    int64_t rows = 0;
    for (int64_t i = 0; i < sequence; ++i) rows += of[i];
    return rows;
  }
  bool operator==(const Lengths&) const = default;
};

// An interval of keys for each query, besides mask and window: of the document that its own key is in, drawn, or as it is listed.
struct Intervals {
  static constexpr int MOST = 32;
  struct Rows {
    int count, first, end;  // so many queries see the keys from `first` on, before `end`
    bool operator==(const Rows&) const = default;
  };
  int documents = 0, seed = 1;  // the keys of a sequence are cut into so many, at places that the seed draws
  int scattered = 0;            // the seed of intervals that are drawn: some are empty, some lie outside
  int listed = 0;  // queries one behind the other, of all sequences; the last ones are also those behind them
  Rows rows[MOST] = {};
  int prefix = -1;  // of each interval so many keys are seen by all, and behind them those up to a query's own; -1: all

  explicit operator bool() const { return documents > 0 || scattered > 0 || listed > 0 || prefix >= 0; }
  bool operator==(const Intervals&) const = default;
};

// Blocks of 128 queries and `keys` keys: of all so many are seen, drawn by the seed, and of these so many in part, pair by pair. What mask,
// window and intervals hide stays hidden.
struct Blocks {
  static constexpr int QUERIES = 128;
  float density = 0, partial = 0;
  int seed = 1, keys = 128;

  explicit operator bool() const { return density > 0; }
  bool operator==(const Blocks&) const = default;
};

// Of what K and V have a scale each, where they are bytes or of four bits beside Q of 16: of a head, of a key of a head, or of a column of
// a head. Usual is a head for bytes, and a key for four bits.
enum class Scales : uint8_t { usual, head, token, channel };

// What is asked: one problem, as a value.
struct Spec {
  Word formula = "forward";
  int batch = 1;
  int heads = 1;
  int kv_heads = 0;  // that a group of heads shares; 0: as many as heads
  int n = 512;       // queries of a sequence, and keys
  int n_k = -1;      // keys, where there are more or fewer; -1: n
  int d = 128;
  bool causal = false;        // the last query sees all keys, the one before it all but one, ...
  int left = -1, right = -1;  // a window: so many keys before a query's own and behind it; -1: all
  float softmax_scale = 0;    // 0: the usual 1 / sqrt(d)
  float softcap = 0;          // scores become softcap tanh(score / softcap); 0: they stay
  bool alibi = false;         // a head's slope times the distance is taken from each score
  bool sink = false;          // each head has a score that belongs to no key
  Element q_type = Element::f16, kv_type = Element::f16, o_type = Element::f16;
  Layout layout = Layout::bhnd;
  int pad = 0;                       // elements between two rows, of V twice as many, which are nobody's
  Lengths lens_q = {}, lens_k = {};  // of each sequence, n and n_k at most; both or none, but of a cache
  // Not 0: K and V are a cache, which has room for n_k keys of each sequence, who uses lens_k of them. It lies in pages of so many, which
  // a table finds; or -1, a sequence's in one piece.
  int page = 0;
  Intervals intervals = {};
  Blocks blocks = {};
  Scales scales = Scales::usual;

  int keys() const { return n_k >= 0 ? n_k : n; }
  int key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  float scale() const { return softmax_scale > 0 ? softmax_scale : 1.0f / std::sqrt(static_cast<float>(d)); }
  bool has_cache() const { return page != 0; }
  // Beside Q of 16 bits K and V are bytes or of four bits, times scales. Of bytes a kernel makes f16 to multiply them with Q; of four bits
  // bf16, or for Q in f16 of K that. Or Q is bytes, too, times scales of its own heads, and bytes are what is multiplied. Or Q and K are
  // int8, each row of a head times a scale of its own, and V is as O.
  bool has_scales() const {
    return has_Q_scales() || (has_16_bits(q_type) && (is_byte(kv_type) || is_nibble(kv_type)));
  }
  bool has_Q_scales() const { return q_type == Element::e4m3 && kv_type == Element::e4m3 && has_16_bits(o_type); }
  bool has_token_scales() const { return has_scales() && scales_per() == Scales::token; }
  bool has_channel_scales() const { return has_scales() && scales_per() == Scales::channel; }
  Scales scales_per() const {
    return scales != Scales::usual ? scales : is_nibble(kv_type) ? Scales::token : Scales::head;
  }
  bool has_row_scales() const { return q_type == Element::s8 && kv_type == Element::s8 && has_16_bits(o_type); }
  Element v_type() const { return has_row_scales() ? o_type : kv_type; }
  static bool has_16_bits(Element type) { return type == Element::f16 || type == Element::bf16; }
  static bool is_byte(Element type) { return type == Element::e4m3 || type == Element::e5m2 || type == Element::s8; }
  static bool is_nibble(Element type) { return type == Element::s4; }
  int64_t batch_heads() const { return int64_t{batch} * heads; }
  int64_t elements() const { return batch_heads() * n * d; }
  bool has_listed_keys() const { return intervals || blocks; }  // which keys a query sees is data
  bool operator==(const Spec&) const = default;
};
using Shape = Spec;

// A problem, and how many multiprocessors the GPU has that solves it: a grid may depend on that.
struct Launched : Spec {
  Launched(const Spec& spec, uint32_t of_gpu = emulator::MULTIPROCESSORS) : Spec(spec), multiprocessors(of_gpu) {}
  uint32_t multiprocessors;
};

// What a problem may ask of a kernel beyond a dense forward pass of whole tiles; problem/shapes.cpp says when.
enum Feature : uint32_t {
  CAUSAL = 1,
  TAILS = 2,  // lengths that are no multiples of its tiles
  CROSS = 4,  // n_k other than n
  GROUPED = 8,
  WINDOW = 16,
  SOFTCAP = 32,
  ALIBI = 64,
  SINK = 128,
  STRIDES = 256,
  VARLEN = 512,
  CACHE = 1024,
  PAGES = 2048,
  INTERVALS = 4096,
  BLOCKS = 8192,
};
// What every model's kernel takes.
constexpr uint32_t MODELS = CAUSAL | TAILS | CROSS | STRIDES | GROUPED;

// What a variant takes of all that.
struct Accepts {
  uint32_t features = 0;
  int min_d = 128, max_d = 128;  // head dimensions,
  int d_step = 1;                // and of what they are multiples: a kernel of max_d columns, in which maps end at d
  Element q = Element::f16, kv = Element::f16, o = Element::f16;
  Word formula = "forward";
  size_t row_bytes = 16;  // what lies behind each row (pad) is a multiple of: copies of 16 bytes and TMA begin at such
  Scales scales = Scales::usual;
};
// Of a kernel whose columns end where a head's do, from `min_d` on in steps of 8: all tensors of the type T.
template <class T>
constexpr Accepts accepts_any_d(uint32_t features, int max_d, int min_d = 8, Word formula = "forward") {
  constexpr Element TYPE = element_of<T>;
  return {features, min_d, max_d, 8, TYPE, TYPE, TYPE, formula};
}

// One block's share of the work: `br` query rows against `bc` key/value rows at a time.
struct Tile {
  int br = 0;
  int bc = 0;
  int warps = 0;
  int m_tiles() const { return br / (16 * warps); }  // 16-row groups of queries per warp
  bool operator==(const Tile&) const = default;
};

using emulator::Counts;
// Predicted of a count that is held where it is said, and is none: 0 would say nothing.
constexpr uint64_t NONE = UINT64_MAX;

// ptxas' word on the default variant, enforced by a test: no more registers and spill bytes than this.
struct ResourceBound {
  int sm;         // 80, 90
  int registers;  // per thread
  int spill_bytes;
  const char* reason = "";  // why it spills, if it does
};

// What a launch is about: the problem, and where its tensors lie, in the memory of the device that it runs on.
struct Arguments {
  struct Tensor {
    const char* name;
    void* data;
    int64_t strides[3];  // of sequences, heads and rows, in elements
  };
  static constexpr int MOST = 16;
  Spec spec;
  Tensor tensors[MOST] = {};
  int count = 0;
  void* workspace = nullptr;

  void add(const Tensor& tensor) { tensors[count++] = tensor; }
  // Null for a tensor that nobody wants. Every launch asks some twenty times.
  const Tensor* find(const char* name) const {
    const auto same = [](const char* one, const char* other) {
      while (*one != 0 && *one == *other) ++one, ++other;
      return *one == *other;
    };
    for (int i = 0; i < count; ++i) {
      if (same(tensors[i].name, name)) return &tensors[i];
    }
    return nullptr;
  }
  void* at(const char* name) const { return find(name) ? find(name)->data : nullptr; }
};

// The same in the form that a kernel takes: an overload for each kind of parameters, which stands beside them.
void convert(const Arguments& arguments, AttentionParams& params);
void convert(const Arguments& arguments, ForwardParams& params);
void convert(const Arguments& arguments, ModelParams& params);
void convert(const Arguments& arguments, ScoreParams& params);
void convert(const Arguments& arguments, CacheParams& params);
void convert(const Arguments& arguments, CacheScoreParams& params);
void convert(const Arguments& arguments, ByteParams& params);
void convert(const Arguments& arguments, TokenScaleParams& params);
void convert(const Arguments& arguments, ByteInputParams& params);
void convert(const Arguments& arguments, RowScaleParams& params);
void convert(const Arguments& arguments, IntervalParams& params);
void convert(const Arguments& arguments, BlockParams& params);
void convert(const Arguments& arguments, GradientParams& params);
void convert(const Arguments& arguments, ModelGradientParams& params);
void convert(const Arguments& arguments, ScoreGradientParams& params);

// The builds of a stage.cu: nvcc's, and three for the emulator. Variables that a kernel leaves unset hold a bit pattern in the first, and
// zeros in the second; in the third a product and the sum behind it are one instruction with one rounding, as nvcc makes of them. A right
// kernel gives the same bits in the first two, and right answers in all.
enum class Build { gpu, pattern, zero, fused };
#if defined(__CUDACC__)
constexpr Build BUILD = Build::gpu;
#elif defined(LADDER_BUILD_ZERO)
constexpr Build BUILD = Build::zero;
#elif defined(LADDER_BUILD_FUSED)
constexpr Build BUILD = Build::fused;
#else
constexpr Build BUILD = Build::pattern;
#endif

// How a build of a stage starts its kernels on that build's device, whatever parameters they take.
struct KernelStart {
  KernelStart() = default;
  template <class Device, class Params>
  explicit KernelStart(void (*run)(Device&, const Params&))
      : run(reinterpret_cast<void (*)()>(run)),
        bind([](const Arguments& arguments, void* params) { convert(arguments, *static_cast<Params*>(params)); }),
        start([](void (*run)(), void* device, const void* params) {
          reinterpret_cast<void (*)(Device&, const Params&)>(run)(*static_cast<Device*>(device),
                                                                  *static_cast<const Params*>(params));
        }) {
    static_assert(sizeof(Params) <= PARAMS_BYTES && alignof(Params) <= alignof(std::max_align_t));
  }

  static constexpr size_t PARAMS_BYTES = 512;
  void (*run)() = nullptr;
  void (*bind)(const Arguments& arguments, void* params) = nullptr;
  void (*start)(void (*run)(), void* device, const void* params) = nullptr;
};

// What a rung is on the ladder: a step of its line, which a newcomer climbs first, or one that hangs beside it.
struct Role {
  enum Value : uint8_t {
    line,     // one of at most 28 that tell the whole story
    branch,   // an idea of its own, for whoever wants to know more: between two of the line, or beside it
    variant,  // what it starts from, for another shape or in a form that differs little
    port,     // what others found, brought to another problem or another card
    lost,     // slower, or no faster, and nothing is built on it
  };
  constexpr Role(Value value) : value(value) {}
  template <int SAID = 0>
  constexpr Role() : value() {
    static_assert(SAID, "A stage.cu says its rung's role: .role = ladder::Role::line, branch, variant, port or lost.");
  }
  Value value;
  bool operator==(const Role&) const = default;
};

// A rung changes at most 60 lines of the kernel that it starts from, so that a reader sees its idea. One that changes more says why.
struct MoreLines {
  enum Why : uint8_t {
    none,
    is_new,   // an instruction or a problem is new: at most 120
    port,     // it brings what others found, and has no idea of its own: any number
    rebuilt,  // who does what, when or in which registers is another throughout: any number
    retold,   // it says what the rung before spells out, or spells out what that one says: any number
    other,    // any number, and its reason: few rungs
  };
  Why why = none;
  const char* reason = "";
};

// What a stage.cu fills and registers. The harness has its own Rung and Variant, made of these (rung.hpp).
namespace told {

using Label = const char*;

// What says the counts of a problem, or of a problem on a GPU.
struct Predict {
  Predict() = default;
  Predict(Counts (*of_problem)(const Shape&)) : of_problem_(of_problem) {}
  Predict(Counts (*of_launch)(const Launched&)) : of_launch_(of_launch) {}
  explicit operator bool() const { return of_problem_ != nullptr || of_launch_ != nullptr; }
  Counts operator()(const Launched& launched) const {
    return of_launch_ != nullptr ? of_launch_(launched) : of_problem_(launched);
  }

 private:
  Counts (*of_problem_)(const Shape&) = nullptr;
  Counts (*of_launch_)(const Launched&) = nullptr;
};

// One compiled configuration of a rung's kernel. The first of a rung is its default, the others are ablations.
struct Variant {
  Label label = "";         // unique within the rung; from the tile, "64x128, 4 warps", if stage.cu gives none
  const char* config = "";  // the kernel's Config: type_name
  Tile tile = {};
  uint32_t smem_bytes = 0;  // dynamic shared memory per block, and what each of the n keys adds to it:
  uint32_t smem_bytes_per_key = 0;
  KernelStart launch = {};
  const void* kernel = nullptr;
  double conflict_ways = 0;      // of the worst ldmatrix or wmma.load line (8, 1); 0: the rung has none
  Predict predict = {};          // expected counts, exact; where the data decide the fewest, and to these come
  Counts per_rescale = {};       // for each rescale of a warp beyond the fewest, a vote that says yes, these,
  Counts per_look = {};          // for each vote on scores beyond those predicted, these
  Counts most_per_rescale = {};  // and for each rescale these at most,
  Predict most_of_data = {};     // and these at most, whatever the votes
  bool recorded = false;         // predicted is what states the idea; all else stands in counts.tsv (verify/record.hpp)

  Accepts accepts = {};                                 // which problems it takes
  bool writes_lse = false;                              // fills AttentionParams::LSE
  uint64_t (*workspace_bytes)(const Shape&) = nullptr;  // AttentionParams::workspace; null: it needs none
  bool stores_scores = false;                           // what that holds is all n^2 scores
  bool from_first_key = false;                          // of all that a query sees: what lies there surprises nobody
  int few_rows = 0;        // made for so many queries at most, of all heads that share keys together; 0: for many
  int few_tiles = 0;       // made, under a mask, for fewer tiles of 128 queries of all heads; 0: for any
  int few_keys = 0;        // made, under a mask, for so many keys at most, of heads that share none by twos; 0: for any
  int dense_tiles = 0;     // made, without a mask, for so many tiles of 128 queries at most; 0: for any
  bool several = false;    // made for sequences of unlike lengths: for one alone another variant is faster
  bool same_bits = false;  // of two runs, to the last, though blocks add to the same sums
  // Of a score on either side of zero, in log2 units (score * log2(e)); 0: as large as f32 has them. 05_exp2f says why there is an end.
  float largest_score = 0;
  // Keys whose values have one sign that it adds up rightly; 0: any number. f01_e4m3 says why there is an end.
  int keys_of_one_sign = 0;
  // Keys over which weights may rise by powers of two, and fall again over values of the other sign; 0: any number.
  // f02_two says why there is an end.
  int keys_of_rising_weights = 0;
};

struct Rung {
  const char* name;             // its directory: "03_kvpipe"
  const char* previous = "";    // the rung whose idea it adds its own to, "02_swizzle"; none for the first alone
  Role role;                    // what it is on the ladder
  bool untried = false;         // no card has run it yet, so the package takes others
  MoreLines more_lines = {};    // why it changes many lines of that rung's kernel, where it does
  const char* idea = "";        // one sentence
  const char* limit = "";       // what limits the rung before, one sentence
  const char* prediction = "";  // what we expected before measuring, with the reason
  int min_sm = 80;              // oldest GPU whose instructions suffice
  int max_sm = 0;               // newest one that has them; 0: every newer one has
  const char* needs = "";       // which ones those are: "mma.m16n8k16, cp.async"
  std::initializer_list<ResourceBound> resources = {};
  std::initializer_list<Variant> variants = {};
};

// Hands a rung to the registry. Made before main.
struct Registration {
  explicit Registration(const Rung& rung, Build build = BUILD);
};

// One Variant of a stage.cu's: `rest` is completed with what its tile and the function that launches it say.
template <class Device, class Params>
Variant make_variant(Tile tile, uint32_t smem_bytes, void (*run)(Device&, const Params&), const void* kernel,
                     Predict predict, Variant rest = {}) {
  rest.tile = tile;
  rest.smem_bytes = smem_bytes;
  rest.launch = KernelStart(run);
  rest.kernel = kernel;
  rest.predict = predict;
  return rest;
}

// A text in which the type's name stands, for the registry: "... [with Type = {anonymous}::Config<64, 128, 4>; ...".
template <class Type>
const char* type_name() {
  return __PRETTY_FUNCTION__;
}

// The same of a kernel's Config, which has BR, BC, WARPS and SMEM_BYTES.
template <class Config, class Device, class Params, class... Args>
Variant make_variant(void (*run)(Device&, const Params&), void (*kernel)(Args...), Predict predict, Variant rest = {}) {
  rest.config = type_name<Config>();
  return make_variant({Config::BR, Config::BC, Config::WARPS}, Config::SMEM_BYTES, run,
                      reinterpret_cast<const void*>(kernel), predict, rest);
}

}  // namespace told
}  // namespace ladder
