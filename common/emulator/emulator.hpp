// The emulated GPU as host code sees it: a Device counts what kernels do and reports what they do wrong.
// Kernels see common/gpu.cuh instead; emulated::launch there starts one on a Device.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/emulator/counters.hpp"
#include "common/emulator/size.hpp"

namespace emulator {

struct Options {
  int threads = 0;       // OS threads that run blocks; 0: one per core
  bool check = true;     // races, uninitialised reads, data in flight; bounds are always checked
  bool count = true;     // shared-memory wavefronts; instructions and bytes are always counted
  bool trace = false;    // record block (0, 0, 0) of every launch
  int max_reports = 20;  // distinct reports kept
  uint32_t multiprocessors = MULTIPROCESSORS;
  // Not 0: the clusters of a grid, in linear order, are cut into so many slices, and only slice `from` is run, the
  // last, and one between them: number `between`, modulo their number; none if that is 0. Where they are not a multiple of that,
  // two neighbours share the cluster at their border.
  uint64_t slices = 0;
  uint64_t from = 0;
  uint64_t between = 0;
  // Of more slices than clusters, a cluster has some beside each other, and not every so many; of a grid of several lines, whole
  // ones are run.
  bool in_runs = false;
  uint64_t whole_up_to = 0;  // grids of no more clusters than this run whole: a launch of one head among others of many
  // Not 0: to a slice belong other clusters, too. The grid is cut into so many parts, and each part's clusters are dealt out to an
  // equal share of the slices in turn: heads may be dealt so, of all sequences or of each, in one launch, and in another not.
  uint64_t interleaved = 0;
  // Not 0: only so many clusters at either end of a grid are run, and, unless `between` is 0, as many somewhere between. If `from` is
  // not 0, not at the beginning but at that of the grid's second half, and somewhere before it.
  uint64_t ends = 0;
  // Not 0: only so many clusters beside each other are run, the last ones or those that `between` says.
  uint64_t some = 0;
  static constexpr uint64_t LAST = ~uint64_t{0};
  // If set, blocks only begin: who comes to its first product waits there for ever, and a block is over when nobody can go on. It is
  // told of each read of global memory, by several threads at a time: the buffer, where, and the block.
  std::function<void(const std::string& buffer, uint64_t offset, uint32_t bytes, uint64_t block)> begun = {};
  bool starts_only = false;  // whether a GPU would begin it is all that is asked of a launch: no block runs
  // Not 0: a thread that executes more emulated instructions than this in one block ends the launch, as does one that
  // executes none for two seconds.
  uint64_t max_steps = 0;
  // Not 0: the order in which the threads of a cluster run is drawn, with this as the seed. 0: all take turns.
  uint64_t schedule = 0;
  // Not 0: the order in which clusters begin is drawn, with this as the seed. 0: that of their numbers.
  uint64_t cluster_order = 0;
  bool ordered_sums = false;  // two additions to one f32 that nothing puts into an order are reported; with check
  uint32_t smem_limit = 0;    // bytes per block, see max_shared_memory; 0: those of sm_90
  int sm = 0;                 // compute capability times ten: instructions that came later are reported; 0: none is
  // When it becomes true, the launch ends early and without a report. It is looked at many times per millisecond.
  const std::atomic<bool>* stop = nullptr;
};

// The dynamic shared memory that a block can have on a GPU of compute capability sm / 10, in bytes; of one that is not
// known here, that of the newest older one. Source: CUDA Programming Guide, "Technical Specifications per Compute
// Capability".
constexpr uint32_t max_shared_memory(int sm) {
  const int kib = sm < 75 ? 96 : sm < 80 ? 64 : sm < 86 ? 163 : sm == 87 ? 163 : sm < 90 ? 99 : sm < 120 ? 227 : 99;
  return static_cast<uint32_t>(kib) * 1024;
}

// Shared-memory traffic of one instruction in one named region of shared memory (smem_name).
struct SiteCounts {
  std::string file;  // as the compiler was given it
  int line = 0;
  std::string instruction;  // "ldmatrix.x4", "st.shared.v2.b32"
  std::string buffer;       // "K", or "shared" where no name was given
  uint64_t requests = 0;    // warp instructions; four for a wmma.load.c or wmma.store.d
  uint64_t wavefronts = 0;  // passes over the 32 banks they took
  uint64_t ideal = 0;       // passes they would take without bank conflicts
  double ways() const { return ideal == 0 ? 0.0 : static_cast<double>(wavefronts) / static_cast<double>(ideal); }
  bool operator==(const SiteCounts&) const = default;
};

// Sums over all launches on a Device. A warp instruction counts once, except where "threads" says otherwise.
// cp.async's writes to shared memory are not among the wavefronts: the hardware's counter does not show them either.
// Nor are those of bulk copies, which are free of conflicts. The bytes that these read are those inside the tensor.
struct Counters : Counts {
  uint64_t wgmma_flops = 0;
  uint64_t cp_async = 0;    // threads
  uint64_t bulk_bytes = 0;  // that land in shared memory, zeros from outside a tensor too, or leave it
  uint64_t smem_wavefronts_ideal = 0;
  uint64_t blocks = 0;
  uint32_t smem_bytes = 0;        // of the launch that asks for most of it, per block
  std::vector<SiteCounts> sites;  // ordered by file, line, instruction, buffer
  double ways() const {
    return smem_wavefronts_ideal == 0
               ? 0.0
               : static_cast<double>(smem_wavefronts) / static_cast<double>(smem_wavefronts_ideal);
  }
  bool operator==(const Counters&) const = default;
};

enum class ReportKind {
  uninitialised_read,     // shared memory that no thread has written
  in_flight_read,         // the destination of an asynchronous copy before its wait, or before that for its mbarrier
  in_flight_overwrite,    // a write to the destination of an asynchronous copy before its wait
  race_read_after_write,  // no barrier between the two
  race_write_after_read,
  race_write_after_write,
  exit_in_flight,        // a thread ends before it has waited for its cp.async, a block before anybody has for a copy
  divergent_barrier,     // threads of a block meet in different __syncthreads()
  barrier_misuse,        // a named barrier with a bad id or with two different thread counts; an mbarrier used wrongly
  race_between_blocks,   // one writes global memory that another of the same launch reads or writes
  unordered_sums,        // two threads add to one f32, in an order that nothing says; with Options::ordered_sums
  missing_proxy_fence,   // the copy engine or wgmma meets what threads have written, and no fence has told it of that
  registers_in_flight,   // of a wgmma: written or named before the wait that covers it
  missing_wgmma_fence,   // a wgmma on registers that no wgmma_fence has handed over since they were written
  register_budget,       // setmaxnreg to more registers than there are to give back, or to fewer than there are
  cluster_misuse,        // a block that is not there, or not any more
  newer_instruction,     // than the GPU of Options::sm
  global_out_of_bounds,  // outside every registered buffer
  global_misaligned,
  global_read_only,  // a write to a registered read-only buffer
  // The remaining kinds are fatal: they end the launch.
  shared_out_of_bounds,
  shared_misaligned,
  bad_descriptor,        // of a wgmma, as no tile of ours lies
  divergent_collective,  // lanes of a warp meet in different warp instructions
  incomplete_warp,       // a warp instruction that needs all 32 lanes after some have ended
  deadlock,
  endless_loop,          // more instructions than Options::max_steps
  plain_access,          // memory that the kernel has reached with a pointer of its own, and that is not there
  array_bounds,          // an index beyond the end of one of the kernel's arrays
  undefined_arithmetic,  // a shift by all bits or more, a floating number that a whole one cannot hold
  stack_overflow,
  kernel_exception,  // or a quotient that is no integer
  bad_launch,        // or a bad tensor map
};
std::string_view to_string(ReportKind kind);
bool is_fatal(ReportKind kind);

struct SourceLine {
  std::string file;  // as the compiler was given it
  int line = 0;
  bool operator==(const SourceLine&) const = default;
};
// "03_kvpipe/kernel.cuh:70": the last directory is kept, for every stage's file has the same name.
std::string to_string(const SourceLine& where);

// One distinct fault, told for the first block in which it happened.
struct Report {
  ReportKind kind;
  std::string message;  // one line, or several for a deadlock
  std::vector<SourceLine>
      where;           // the access at fault first, then the one it clashes with; the lines of an endless loop
  std::string buffer;  // that the fault is about: a named region of shared memory, or a global buffer
  uint64_t times = 1;
  bool within_warp = false;  // a race between lanes of one warp
};
// Where a report stands among those of its launch, lowest first: what is likely to be the cause comes before what
// follows from it. Missing waits (data in flight); uninitialised reads; races between warps; races between lanes of one
// warp; what else is wrong; and what has ended the launch.
int rank(const Report& report);

// The part of a named region of shared memory, or of a registered global buffer, that a warp instruction touches.
struct Extent {
  std::string buffer;   // empty: the instruction does not touch this memory
  uint64_t offset = 0;  // of the lowest byte, from the start of the buffer
  uint64_t bytes = 0;   // up to behind the highest; what strided lanes leave out in between is counted in
  bool operator==(const Extent&) const = default;
};

// One warp instruction of block (0, 0, 0), in the order of execution there. What lanes issue on their own is put
// together: a lane's n-th time at a place in the source is its part in the warp's n-th event there.
struct TraceEvent {
  int launch = 0;
  int warp = 0;
  uint64_t sequence = 0;
  std::string_view instruction;  // "cp.async.16", "mma.m16n8k16", "__syncthreads"
  std::string file;
  int line = 0;
  Extent shared, global;  // cp.async has both
  uint32_t bytes = 0;     // moved, all lanes together
  int operand = 0;        // cp.async.wait_group: groups that may stay in flight; named barrier: its id;
                          // mbarrier.init: its count; mbarrier.arrive.expect_tx: the bytes; mbarrier.try_wait: the
                          // parity; vote.any: what it says
  int threads = 0;        // named barrier: how many it waits for
};

// A region of shared memory as the traced block of a launch has named it.
struct TraceRegion {
  int launch = 0;
  std::string name;
  uint32_t offset = 0;  // from smem_base()
  uint32_t bytes = 0;
};

enum class Access { read_only, read_write };

class GlobalShadow;

// Not thread-safe: one host thread uses a Device at a time. A launch runs its blocks on Options::threads threads and
// returns when all are done.
class Device {
 public:
  explicit Device(Options options = {}) : options_(options) {}

  const Options& options() const { return options_; }

  // Makes a global buffer known; the caller keeps owning it. Once one is known, every access elsewhere is reported, and
  // then reads as NaN or is dropped. Registering an address again replaces its entry. With a `shadow` the emulated
  // instructions read and write there, at the same offset, and nobody touches the memory at `begin`: if its pages are
  // protected, every access of a kernel's own is a plain-access report.
  void register_buffer(const void* begin, size_t bytes, std::string name, Access access, const void* shadow = nullptr);

  const Counters& counters() const { return counters_; }
  // Launch by launch, by rank, then in the order of the blocks.
  const std::vector<Report>& reports() const { return reports_; }
  const std::vector<TraceEvent>& trace() const { return trace_; }
  const std::vector<TraceRegion>& trace_regions() const { return trace_regions_; }
  // Faults that were folded into an earlier report, or that came after max_reports.
  uint64_t repeats() const { return repeats_; }
  // A fatal report ended a launch. Later launches do nothing until reset().
  bool failed() const { return failed_; }
  // Options::stop ended a launch. Later launches do nothing until reset(); counts and reports are those so far.
  bool stopped() const { return stopped_; }
  // Forgets counts, reports, trace and failure. Buffers stay registered.
  void reset();
  // A call of the host's that the hardware or its driver would refuse: a bad-launch report, and the Device has failed.
  void refuse(std::string why);

  struct Buffer {
    const std::byte* begin;
    size_t bytes;
    std::string name;
    Access access;
    const std::byte* memory;  // where its bytes lie: its shadow, or `begin`
  };
  const std::vector<Buffer>& buffers() const { return buffers_; }
  // The line that has written the byte at that offset of a buffer last, or added to it; nothing where nobody has or it is not known.
  std::optional<SourceLine> writer_of(std::string_view buffer, uint64_t offset) const;

 private:
  friend class Launch;  // launch.cpp
  Options options_;
  std::vector<Buffer> buffers_;
  Counters counters_;
  std::vector<Report> reports_;
  std::vector<TraceEvent> trace_;
  std::vector<TraceRegion> trace_regions_;
  uint64_t repeats_ = 0;
  int launches_ = 0;
  std::vector<const void*> kernels_;  // that have been launched
  std::shared_ptr<GlobalShadow> last_launch_;
  std::vector<std::shared_ptr<GlobalShadow>> earlier_launches_;  // that are small
  bool failed_ = false;
  bool stopped_ = false;
};

}  // namespace emulator
