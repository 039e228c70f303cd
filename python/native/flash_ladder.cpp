#include "python/native/flash_ladder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <tuple>

#include "common/emulator/emulator.hpp"
#include "harness/base/nearest.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/problem/element.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/problem/spec.hpp"
#include "python/native/gpu.hpp"

using namespace ladder;

struct flash_ladder_plan {
  const Rung* rung;
  const Variant* variant;
  Spec spec;
  int device;
  bool lse_by_itself;  // log_sum_exp, behind a rung that writes none
};

namespace {

// What a problem may ask for. Nothing of it is computed here, so names are enough.
Formula named(std::string_view name) {
  Formula formula{};
  formula.name = name;
  return formula;
}
const FormulaRegistration forward(named("forward")), backward(named("backward"));

std::string json_text(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  return json + '"';
}

std::string json_of(const Variant& variant) {
  std::vector<std::string> takes{json_text("dense")};
  for (const std::string_view feature : names_of(variant.accepts.features)) takes.push_back(json_text(feature));
  const Accepts& accepts = variant.accepts;
  return fmt::format(
      R"({{"label": {}, "solves": {}, "takes": [{}], "types": [{}, {}, {}], "min_d": {}, "max_d": {}, "d_step": {}, "writes_lse": {}, "on_gpu": {}}})",
      json_text(variant.label), json_text(accepts.formula.text), fmt::join(takes, ", "),
      json_text(to_string(accepts.q)), json_text(to_string(accepts.kv)), json_text(to_string(accepts.o)), accepts.min_d,
      accepts.max_d, accepts.d_step, variant.writes_lse, static_cast<bool>(variant.on_gpu));
}

std::string json_of(const Rung& rung) {
  std::vector<std::string> variants;
  for (const Variant& variant : rung.variants) variants.push_back(json_of(variant));
  return fmt::format(R"({{"rung": {}, "previous": {}, "idea": {}, "gpus": {}, "variants": [{}]}})",
                     json_text(rung.name), json_text(rung.previous), json_text(rung.idea), json_text(gpus_of(rung)),
                     fmt::join(variants, ", "));
}

thread_local std::string message;
int say(int status, std::string what) {
  message = std::move(what);
  return status;
}

// Where a kernel has to run, and what it has to write.
struct Wanted {
  std::optional<GpuInfo> gpu;  // none: the emulator
  bool lse, same_bits, packed;
};

// Whether LSE can be had beside a rung that writes none: log_sum_exp says what it takes as a rung does.
bool log_sum_exp_takes(const Spec& spec, const Wanted& wanted) {
  static const Variant by_itself{.accepts = {.features = CAUSAL | TAILS | CROSS}};
  const bool is_there = !wanted.gpu || wanted.gpu->sm >= 80;  // mma.m16n8k16
  return is_there && takes(by_itself, spec);
}
LogSumExpParams log_sum_exp_params(const Arguments& arguments) {
  const Spec& spec = arguments.spec;
  const auto strides = [&](const char* name) {
    const auto& [sequences, heads, rows] = arguments.find(name)->strides;
    return ForwardParams::Strides{sequences, heads, rows};
  };
  return {.Q = static_cast<const f16*>(arguments.at("Q")),
          .K = static_cast<const f16*>(arguments.at("K")),
          .LSE = static_cast<float*>(arguments.at("LSE")),
          .Q_strides = strides("Q"),
          .K_strides = strides("K"),
          .batch = spec.batch,
          .heads = spec.heads,
          .n_q = spec.n,
          .n_k = spec.keys(),
          .softmax_scale = spec.scale(),
          .causal = spec.causal};
}

// Whether two runs give the same bits: blocks add to the same sums in an order, or to none, as what is predicted of a small problem says.
bool gives_same_bits(const Variant& variant) {
  const Accepts& accepts = variant.accepts;
  if (variant.same_bits || accepts.formula == Spec().formula) return true;
  Spec small;
  small.formula = accepts.formula;
  small.d = accepts.min_d;
  small.q_type = accepts.q;
  small.kv_type = accepts.kv;
  small.o_type = accepts.o;
  small.scales = accepts.scales;
  return variant.predict && takes(variant, small) && variant.predict(small).gmem_bytes_reduced == 0;
}

// Success, or why the variant does not solve the problem so.
Status can(const Rung& rung, const Variant& variant, const Spec& spec, const Wanted& wanted) {
  if (Status status = supports(rung, variant, spec); !status) return status;
  if (wanted.lse && !variant.writes_lse && !log_sum_exp_takes(spec, wanted)) {
    std::vector<std::string_view> able;
    for (const Rung& other : rungs()) {
      if (other.variants.front().writes_lse) able.push_back(other.name);
    }
    return failure(ExitCode::usage,
                   fmt::format("{} writes no LSE.\n  Stages that do: {}", rung.name, fmt::join(able, ", ")));
  }
  if (wanted.same_bits && !gives_same_bits(variant)) {
    std::vector<std::string_view> able;
    for (const Rung& other : rungs()) {
      const Variant& first = other.variants.front();
      if (first.accepts.formula == spec.formula && gives_same_bits(first)) able.push_back(other.name);
    }
    return failure(ExitCode::usage,
                   fmt::format("{} adds to the same sums in any order: two runs differ in their last bits.\n"
                               "  Stages that do not: {}",
                               rung.name, fmt::join(able, ", ")));
  }
  if (!wanted.gpu) return {};
  Status status = runs_on(rung, variant, spec, *wanted.gpu);
  if (!status) {  // the way out that it knows is the command line's
    std::string& message = status.error().message;
    message = message.substr(0, message.find("\n  Here:")) + "\n  Here:  tensors on the CPU run it, emulated";
  }
  return status;
}

// Of a rung the first variant that can; null if none does.
const Variant* variant_for(const Rung& rung, const Spec& spec, const Wanted& wanted) {
  const auto found = std::ranges::find_if(rung.variants, [&](const Variant& variant) {
    return takes(variant, spec) && can(rung, variant, spec, wanted);  // most are refused without a sentence
  });
  return found == rung.variants.end() ? nullptr : &*found;
}
// By its variant for such types and columns, where it has one: what another one lacks is not what is lacking.
std::string why_not(const Rung& rung, const Spec& spec, const Wanted& wanted) {
  const auto unlike = [&](const Variant& each) {
    const Accepts& of = each.accepts;
    const bool other_types = of.q != spec.q_type || of.kv != spec.kv_type || of.o != spec.o_type;
    return 2 * other_types + (spec.d < of.min_d || spec.d > of.max_d || spec.d % of.d_step != 0);
  };
  return can(rung, *std::ranges::min_element(rung.variants, {}, unlike), spec, wanted).error().message;
}

// Of sequences whose lengths are known on the device alone. What stands in their place asks for a rung that takes them, and for
// its workspace, which depends on their number and on that of their rows.
Spec packed_like(Spec spec, int rows_q, int rows_k) {
  spec.lens_q = {.count = 1, .of = {rows_q}};
  spec.lens_k = {.count = 1, .of = {rows_k}};
  return spec;
}
std::string text_of(Spec spec, const Wanted& wanted) {
  if (wanted.packed) spec.lens_q = spec.lens_k = {};
  const std::string_view listed = spec.intervals ? " with intervals of keys"
                                  : spec.blocks  ? " with lists of blocks"
                                                 : "";
  spec.intervals = {}, spec.blocks = {};
  return fmt::format("{}{}{}{}{}", to_string(spec), listed, wanted.packed ? " in sequences of several lengths" : "",
                     wanted.lse ? " with LSE" : "", wanted.same_bits ? " with the same bits each time" : "");
}

struct Kernel {
  const Rung* rung;
  const Variant* variant;
};

// The last rung that takes the problem, but not on that GPU, or not with LSE; or its types; or its head dimension; or its formula.
const Rung& nearest_to(const Spec& spec) {
  const auto last = [](const auto& fits) {
    const auto found = std::ranges::find_if(rungs().rbegin(), rungs().rend(),
                                            [&](const Rung& rung) { return std::ranges::any_of(rung.variants, fits); });
    return found == rungs().rend() ? nullptr : &*found;
  };
  const auto solves = [&](const Variant& each) { return each.accepts.formula == spec.formula; };
  const auto has_types = [&](const Variant& each) {
    const Accepts& of = each.accepts;
    return solves(each) && of.q == spec.q_type && of.kv == spec.kv_type && of.o == spec.o_type;
  };
  const auto has_d = [&](const Variant& each) {
    return solves(each) && each.accepts.min_d <= spec.d && spec.d <= each.accepts.max_d;
  };
  for (const Rung* const rung :
       {last([&](const Variant& each) { return takes(each, spec); }), last(has_types), last(has_d), last(solves)}) {
    if (rung != nullptr) return *rung;
  }
  return rungs().back();
}

// Of the rung of that name; or, of all that can, the best by these, one after the other: made for few queries, or for few tiles of them,
// where there are so few, and else not; the newest instructions; one that a card has run, and that has not lost; under a mask
// one whose few_keys are enough, and not it where heads share keys in pairs and there are 800 tiles; without a mask one whose dense_tiles are enough; made for sequences of
// unlike lengths, where a cache has several, and else not; any strides; the fewest columns; lists of blocks where they are asked for
// alone; the fewest things that are not asked for, windows (but for gradients), functions of scores, gradients whose bits are the same each time (43 and 44 are
// slower than 42 where no window is asked, and several lengths have kernels of their own; a sink costs no clocks, nor, where queries are
// few, a cache); the last of the ladder. Instructions of one architecture alone are newer than any that the next one has, too; but not
// where queries are few, when it is memory that counts.
Result<Kernel> kernel_for(const Spec& spec, std::string_view name, const Wanted& wanted) {
  const std::vector<Rung>& all = rungs();
  if (!name.empty()) {
    const auto rung = std::ranges::find_if(
        all, [&](const Rung& each) { return each.name == name || each.number() == name || each.word() == name; });
    if (rung == all.end()) {
      std::vector<std::string> names;
      for (const Rung& each : all) {
        names.emplace_back(each.name);
        names.emplace_back(each.word());
      }
      const std::string best = nearest(name, names);
      return failure(ExitCode::check_failed, fmt::format("There is no rung '{}'.{}", name,
                                                         best.empty() ? "\n  All that there are: flash_ladder.rungs()"
                                                                      : fmt::format(" Did you mean {}?", best)));
    }
    const Variant* const variant = variant_for(*rung, spec, wanted);
    if (variant == nullptr) return failure(ExitCode::usage, why_not(*rung, spec, wanted));
    return Kernel{&*rung, variant};
  }
  const int64_t rows = int64_t{spec.n} * (spec.heads / spec.key_heads());
  const auto rank = [&](const Rung& rung, const Variant& variant) {  // the least is the best
    const bool for_few = variant.few_rows > 0;
    const int columns = variant.accepts.d_step > 1 ? variant.accepts.max_d : spec.d;
    const bool unequal = spec.has_cache() && spec.batch > 1;
    const int idle = unasked(variant, spec) + (variant.same_bits && !wanted.same_bits);
    const int64_t tiles = int64_t{spec.batch_heads()} * ((spec.n + 127) / 128);
    const bool is_short = tiles < variant.few_tiles && spec.causal && !(needs(spec) & WINDOW);
    // Of few tiles of many keys, too, a tile of 64 rows finds more SMs than one of 128: so it was with 512 queries beside 8192 keys.
    const int64_t most_rows = spec.keys() >= 8 * spec.n && tiles <= 66 ? 16 * variant.few_rows : variant.few_rows;
    // Heads that share keys by twos are for a pair of blocks, where there are tiles enough for all of them.
    const bool by_twos = spec.heads / spec.key_heads() % 2 == 0 && tiles >= 800;
    const bool is_far = variant.few_keys > 0 && spec.causal && (spec.keys() > variant.few_keys || by_twos);
    const int unfit = for_few ? (rows <= most_rows ? 0 : 3) : is_short ? 1 : 2;
    return std::tuple(unfit, -rung.min_sm, !for_few && rung.max_sm == 0, rung.untried, rung.role == Role::lost,
                      variant.keys_of_one_sign > 0, is_far,  // who is right for some keys comes behind who is for all
                      variant.dense_tiles > 0 && !spec.causal && tiles > variant.dense_tiles,
                      variant.several != unequal, !variant.takes(STRIDES), columns,
                      variant.takes(BLOCKS) && !spec.blocks, idle);
  };
  Kernel best{nullptr, nullptr};
  for (const Rung& rung : all) {
    const Variant* const variant = variant_for(rung, spec, wanted);
    if (variant != nullptr && (best.rung == nullptr || rank(rung, *variant) <= rank(*best.rung, *best.variant)))
      best = {&rung, variant};
  }
  if (best.rung != nullptr) return best;
  const Rung& nearest = nearest_to(spec);
  return failure(ExitCode::usage, fmt::format("No rung takes {}. Of those that come near, the last one says: {}",
                                              text_of(spec, wanted), why_not(nearest, spec, wanted)));
}

// The addresses that an emulated kernel gets, at which there is nothing: whatever it does past the emulator faults, and two
// tensors that share memory are two all the same.
class Addresses {
 public:
  explicit Addresses(size_t bytes)
      : bytes_(std::max<size_t>(bytes, 1)),
        begin_(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (begin_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Addresses() { munmap(begin_, bytes_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  void* begin() const { return begin_; }

 private:
  size_t bytes_;
  void* begin_;
};

std::mutex emulator_mutex;
std::atomic<bool> stop = false;
// A fork takes one thread along. If another one held the lock, nobody in the child would ever give it up: there it is a new one.
[[maybe_unused]] const int forks = pthread_atfork(nullptr, nullptr, [] {
  new (&emulator_mutex) std::mutex;
  stop = false;
});

// Starts a kernel on an emulator that knows the tensors, `start(device, arguments)`, and says what it did wrong.
template <class Start>
Status emulate(std::string_view name, const Arguments& tensors, const flash_ladder_tensor* of, Start start) {
  const std::lock_guard alone(emulator_mutex);
  stop = false;
  static uint64_t runs = 0;
  // Races and conflicts were looked for by `ladder check`; what lies outside of a tensor is refused here, too. Blocks begin in another
  // order in each run, as they may on a GPU.
  emulator::Device device({.check = false, .count = false, .cluster_order = ++runs, .stop = &stop});
  Arguments arguments = tensors;
  std::deque<Addresses> addresses;
  for (int i = 0; i < arguments.count; ++i) {
    const auto bytes = static_cast<size_t>(of[i].bytes);
    Arguments::Tensor& tensor = arguments.tensors[i];
    device.register_buffer(addresses.emplace_back(bytes).begin(), bytes, tensor.name,
                           of[i].written ? emulator::Access::read_write : emulator::Access::read_only, tensor.data);
    tensor.data = addresses.back().begin();
  }
  start(device, arguments);
  if (device.stopped()) return failure(ExitCode::interrupted, "stopped");
  if (device.reports().empty()) return {};
  return failure(ExitCode::check_failed,
                 fmt::format("{} went wrong on the emulator: {}", name, device.reports().front().message));
}

Arguments arguments_of(const Spec& spec, const flash_ladder_tensor* tensors, void* const* data, int count) {
  Arguments arguments{.spec = spec};
  for (int i = 0; i < count; ++i) {
    const auto& [name, strides, bytes, written] = tensors[i];
    arguments.add({name, data[i], {strides[0], strides[1], strides[2]}});
  }
  return arguments;
}

MergeParams merge_params(const Arguments& arguments, bool in_f32) {
  const Arguments::Tensor* const tensors = arguments.tensors;
  const auto strides = [&](int i) {
    const auto& [sequences, heads, rows] = tensors[i].strides;
    return ForwardParams::Strides{sequences, heads, rows};
  };
  const Spec& spec = arguments.spec;
  return {.O = tensors[0].data,
          .LSE = static_cast<float*>(tensors[1].data),
          .other = tensors[2].data,
          .other_LSE = static_cast<const float*>(tensors[3].data),
          .O_strides = strides(0),
          .LSE_strides = strides(1),
          .other_strides = strides(2),
          .other_LSE_strides = strides(3),
          .batch = spec.batch,
          .heads = spec.heads,
          .n = spec.n,
          .in_f32 = in_f32,
          .is_bf16 = spec.q_type == Element::bf16};
}

// 16 bits are copied at a time, whatever they are: of the tokens, or of their scales.
AppendParams append_params(const Arguments& arguments, int n, bool of_scales = false) {
  const Spec& spec = arguments.spec;
  const int bits = of_scales ? 32 : info(spec.kv_type).bits;
  const auto strides = [&](const char* name) {
    const Arguments::Tensor* const found = arguments.find(name);
    ForwardParams::Strides in_16_bits{};
    if (found != nullptr)
      in_16_bits = {found->strides[0] * bits / 16, found->strides[1] * bits / 16, found->strides[2] * bits / 16};
    return in_16_bits;
  };
  const char *const k = of_scales ? "k_scales" : "k", *const v = of_scales ? "v_scales" : "v";
  const char *const K = of_scales ? "K_scales" : "K", *const V = of_scales ? "V_scales" : "V";
  const int page_size = std::max(spec.page, 1);
  return {.k = arguments.at(k),
          .v = arguments.at(v),
          .K = arguments.at(K),
          .V = arguments.at(V),
          .cache_seqlens = static_cast<const int*>(arguments.at("cache_seqlens")),
          .lengths = static_cast<int*>(arguments.at("lengths")),
          .block_table = static_cast<const int*>(arguments.at("block_table")),
          .k_strides = strides(k),
          .v_strides = strides(v),
          .K_strides = strides(K),
          .V_strides = strides(V),
          .batch = spec.batch,
          .heads = spec.key_heads(),
          .n = n,
          .n_k = spec.keys(),
          .d = (of_scales ? 1 : spec.d) * bits / 16,
          .most_pages = (spec.keys() + page_size - 1) / page_size,
          .page_size = page_size};
}

// What a call ends with that may throw.
template <class Call>
int done(Call call) {
  Status status;
  try {
    status = call();
  } catch (const std::exception& error) {
    status = failure(ExitCode::check_failed, error.what());
  }
  return status ? FLASH_LADDER_DONE : say(FLASH_LADDER_FAILED, status.error().message);
}

}  // namespace

const char* flash_ladder_rungs() {
  static const std::string json = [] {
    std::vector<std::string> all;
    for (const Rung& rung : rungs()) all.push_back(json_of(rung));
    return fmt::format("[{}]", fmt::join(all, ",\n "));
  }();
  return json.c_str();
}

int flash_ladder_make_plan(const char* problem, const char* rung, int device, int with_lse, int same_bits, int rows_q,
                           int rows_k, flash_ladder_plan** plan, flash_ladder_kernel* kernel) {
  const Result<Spec> parsed = parse_spec(problem);
  if (!parsed) return say(FLASH_LADDER_NO_PROBLEM, parsed.error().message);
  const bool packed = rows_q > 0;
  const Spec spec = packed ? packed_like(*parsed, rows_q, rows_k) : *parsed;
  Wanted wanted{.gpu = {}, .lse = with_lse != 0, .same_bits = same_bits != 0, .packed = packed};
  if (device != FLASH_LADDER_EMULATOR) {
    auto gpu = gpu_numbered(device);
    if (!gpu) return say(FLASH_LADDER_NOT_TAKEN, gpu.error().message);
    wanted.gpu = *gpu;
  }
  const auto found = kernel_for(spec, rung == nullptr ? "" : rung, wanted);
  if (!found) {
    const bool unknown = found.error().code == ExitCode::check_failed;
    return say(unknown ? FLASH_LADDER_NO_PROBLEM : FLASH_LADDER_NOT_TAKEN, found.error().message);
  }
  *plan = new flash_ladder_plan{found->rung, found->variant, spec, device, wanted.lse && !found->variant->writes_lse};
  *kernel = {.rung = found->rung->name.data(),
             .variant = found->variant->label.c_str(),
             .workspace_bytes = found->variant->workspace_at(spec),
             .strides = found->variant->takes(STRIDES),
             // Those with ForwardParams write it where there is a place for it.
             .needs_lse = found->variant->writes_lse && !found->variant->takes(STRIDES),
             .largest_score = found->variant->largest_score,
             .says_why = chapter_of_largest_score(*found->variant).data()};
  return FLASH_LADDER_DONE;
}

void flash_ladder_free_plan(flash_ladder_plan* plan) {
  delete plan;
}

int flash_ladder_run(const flash_ladder_plan* plan, const flash_ladder_tensor* tensors, void* const* data, int count,
                     void* stream) {
  if (count > Arguments::MOST) return say(FLASH_LADDER_FAILED, "too many tensors");
  Arguments arguments = arguments_of(plan->spec, tensors, data, count);
  const auto workspace = [](Arguments& of) { of.workspace = of.at("workspace"); };
  return done([&] {
    if (plan->device == FLASH_LADDER_EMULATOR) {
      return emulate(plan->rung->name, arguments, tensors, [&](emulator::Device& device, Arguments& emulated) {
        workspace(emulated);
        plan->variant->on_emulator.with(emulated)(device);
        if (plan->lse_by_itself) log_sum_exp(device, log_sum_exp_params(emulated));
      });
    }
    workspace(arguments);
    const auto lse = plan->lse_by_itself ? std::optional(log_sum_exp_params(arguments)) : std::nullopt;
    return start_on_gpu(*plan->variant, arguments, lse ? &*lse : nullptr, plan->device, stream);
  });
}

int flash_ladder_merge(const char* problem, const flash_ladder_tensor* tensors, void* const* data, int in_f32,
                       int device, void* stream) {
  const Result<Spec> spec = parse_spec(problem);
  if (!spec) return say(FLASH_LADDER_NO_PROBLEM, spec.error().message);
  if (spec->d != 128 || (spec->q_type != Element::bf16 && spec->q_type != Element::f16)) {
    return say(FLASH_LADDER_NOT_TAKEN,
               "Partial results are merged in f16 or bf16 with d = 128; this is " + to_string(*spec));
  }
  const Arguments arguments = arguments_of(*spec, tensors, data, 4);
  return done([&] {
    if (device != FLASH_LADDER_EMULATOR) return merge_on_gpu(merge_params(arguments, in_f32), device, stream);
    return emulate("merge", arguments, tensors, [&](emulator::Device& emulated, const Arguments& there) {
      merge(emulated, merge_params(there, in_f32));
    });
  });
}

int flash_ladder_append(const flash_ladder_plan* plan, const flash_ladder_tensor* tensors, void* const* data, int count,
                        int n, void* stream) {
  const Arguments arguments = arguments_of(plan->spec, tensors, data, count);
  return done([&] {
    const bool with_scales = arguments.find("k_scales") != nullptr;
    if (plan->device != FLASH_LADDER_EMULATOR) {
      const Status status = append_on_gpu(append_params(arguments, n), plan->device, stream);
      if (!status || !with_scales) return status;
      return append_on_gpu(append_params(arguments, n, true), plan->device, stream);
    }
    return emulate("append", arguments, tensors, [&](emulator::Device& emulated, const Arguments& there) {
      append(emulated, append_params(there, n));
      if (with_scales) append(emulated, append_params(there, n, true));
    });
  });
}

const char* flash_ladder_message() {
  return message.c_str();
}

void flash_ladder_stop() {
  stop = true;
}

void flash_ladder_rest() {
  while (!emulator_mutex.try_lock()) {
    stop = true;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  emulator_mutex.unlock();
}
