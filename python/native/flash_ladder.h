/* The ladder's kernels behind C: which rungs there are, which of them takes a problem, and a run of one on given memory. A
 * problem is a line of text, as on the command line (harness/problem/spec.hpp). Nothing is thrown: a status comes back, and a
 * message waits. Any thread may call; of runs on the emulator one waits for another. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define FLASH_LADDER_API __attribute__((visibility("default")))

/* Where kernels run: a GPU by its number, or the emulator. */
enum { FLASH_LADDER_EMULATOR = -1 };

enum flash_ladder_status {
  FLASH_LADDER_DONE = 0,
  FLASH_LADDER_NO_PROBLEM = 1, /* the text is none, or there is no rung of that name */
  FLASH_LADDER_NOT_TAKEN = 2,  /* by that rung, or by any; or not here */
  FLASH_LADDER_FAILED = 3      /* the kernel, or the launch */
};

/* A kernel for a problem. The caller owns it. */
typedef struct flash_ladder_plan flash_ladder_plan;

/* What is alike in calls that differ in their numbers alone. Its name is what the rung's parameters ask for: "Q" "K" "V" "O" "LSE"
 * "slopes" "sinks" "cu_seqlens_q" "cu_seqlens_k" "cache_seqlens" "block_table" "dO" "dQ" "dK" "dV" "dsinks" "workspace". A gradient lies like its tensor: dQ
 * like Q, and dO like O. */
typedef struct {
  const char* name;
  int64_t strides[3]; /* of sequences, heads and rows, in elements */
  int64_t bytes;      /* from the first element to behind the last one, gaps included */
  int32_t written;    /* an output */
} flash_ladder_tensor;

typedef struct {
  const char *rung, *variant; /* "02_swizzle", "64x128, 4 warps" */
  uint64_t workspace_bytes;   /* that a run needs beside the tensors */
  int32_t strides;            /* whether it takes tensors that are not [batch, heads, n, d] in one piece */
  int32_t needs_lse;          /* whether it writes LSE, wanted or not */
  float largest_score;        /* that it takes, times log2(e); 0: as large as f32 has them */
  const char* says_why;       /* the chapter that tells why there is an end */
} flash_ladder_kernel;

/* A JSON array of all rungs, in the ladder's order: what each one is and takes. */
FLASH_LADDER_API const char* flash_ladder_rungs(void);

/* The kernel that solves the problem, and writes LSE if that is wanted: of the rung of that name; or, without a name, of all
 * that can, of those with the newest instructions the last. `same_bits`: two runs give the same ones, to the last. `rows_q`, `rows_k`:
 * sequences lie one behind the other, [total, heads, d], so many rows at most, and cu_seqlens, [batch + 1], say on the device where each
 * begins and the last one ends; no sequence is longer than the problem's. 0: they do not. */
FLASH_LADDER_API int flash_ladder_make_plan(const char* problem, const char* rung, int device, int with_lse,
                                            int same_bits, int rows_q, int rows_k, flash_ladder_plan** plan,
                                            flash_ladder_kernel* kernel);
FLASH_LADDER_API void flash_ladder_free_plan(flash_ladder_plan* plan);

/* One launch. On a GPU in a stream (a cudaStream_t), and nobody waits for it; on the emulator it is done at the end. `data`: where
 * the tensors begin in the memory of the device, on multiples of 16 bytes. */
FLASH_LADDER_API int flash_ladder_run(const flash_ladder_plan* plan, const flash_ladder_tensor* tensors,
                                      void* const* data, int count, void* stream);

/* `n` new tokens of each sequence go behind the keys and values of a cache (append.hpp): tensors "k" "v" (or none, and n is 0), "K" "V"
 * "cache_seqlens" and "lengths", which is written; "block_table" where the plan's problem has pages. Of that count batch, heads of keys,
 * n_k, d, pages and the type. */
FLASH_LADDER_API int flash_ladder_append(const flash_ladder_plan* plan, const flash_ladder_tensor* tensors,
                                         void* const* data, int count, int n, void* stream);

/* For PyTorch's tensors, which are Python objects here: calls that were made, and of those that differ from one in numbers and addresses
 * alone the launch, without a step of Python. `exchange_api` is what torch.Tensor.__dlpack_c_exchange_api__ holds, `is_neg` is
 * torch.Tensor's. A call has `count` tensors: Q K V O and what else the kernel is told of; and k and v, where they are appended first.
 * What is made stays for good, and so must is_neg. The interpreter's lock is held. NULL, or FLASH_LADDER_NOT_TAKEN: it cannot be done
 * so, or not here. */
typedef struct flash_ladder_calls flash_ladder_calls;
FLASH_LADDER_API flash_ladder_calls* flash_ladder_make_calls(const void* exchange_api, int count, void* is_neg);

/* One that was made with those objects. `tensors` is what flash_ladder_run was told, a workspace, which is PyTorch's memory for as long as
 * a call lasts, behind what is given; `appended` what flash_ladder_append was told with n new tokens, or there are 0 of it. make_o: a
 * function that makes O of Q, in one piece. `owner` is the object that owns the plan. Both are kept for as long as the call is, which is
 * until some tens of others were added. NOT_TAKEN, too, if there is such a call. */
FLASH_LADDER_API int flash_ladder_add_call(flash_ladder_calls* calls, const flash_ladder_plan* plan,
                                           const flash_ladder_tensor* tensors, int tensor_count,
                                           const flash_ladder_tensor* appended, int appended_count, int n,
                                           void* const* objects, void* make_o, void* owner);

/* A function for Python, a new reference. Of such objects, None for an O that is to be made, it returns O; or None, and there was no such
 * call before, or it cannot be done so. */
FLASH_LADDER_API void* flash_ladder_function_of(flash_ladder_calls* calls);

/* Two partial results over different keys become one, in place of the first (merge.hpp): `tensors` and `data` are its O and LSE, and the
 * other's O and LSE. Of the problem count batch, heads, n, d and the type of the other's O; the first O is in f32 where in_f32 is not 0. */
FLASH_LADDER_API int flash_ladder_merge(const char* problem, const flash_ladder_tensor* tensors, void* const* data,
                                        int in_f32, int device, void* stream);

/* Why the last call of this thread that did not end with FLASH_LADDER_DONE did not: the cause, the fact, the way out. */
FLASH_LADDER_API const char* flash_ladder_message(void);

/* Ends the emulator's run soon, which then has failed. For a signal handler or another thread. */
FLASH_LADDER_API void flash_ladder_stop(void);

/* The same, until no run is at work. Not for a signal handler. */
FLASH_LADDER_API void flash_ladder_rest(void);

#ifdef __cplusplus
}
#endif
