// Calls like one that was made before: from PyTorch's tensors to the launch, without Python (flash_ladder.h).
#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "python/native/flash_ladder.h"

namespace {

// DLPack 1, as https://github.com/dmlc/dlpack describes it: what a tensor is, and the table of functions that PyTorch has for C.
struct Device {
  int32_t type, id;
  bool operator==(const Device&) const = default;
};
struct Type {
  uint8_t code, bits;
  uint16_t lanes;
  bool operator==(const Type&) const = default;
};
struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  Type type;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct Managed {  // a tensor with whoever owns it
  uint32_t major, minor;
  void* owner;
  void (*free)(Managed*);
  uint64_t flags;
  Tensor tensor;
};
struct ExchangeApi {
  uint32_t major, minor;
  void* older;
  int (*allocate)(const Tensor* like, Managed** made, void* context,
                  void (*say)(void* context, const char* kind, const char* message));
  void (*unused[2])();
  int (*tensor_of)(void* object, Tensor* tensor);
  int (*stream_of)(int32_t device_type, int32_t device_id, void** stream);
};
constexpr int32_t CUDA = 2;       // of device types
constexpr Type BYTE = {1, 8, 1};  // unsigned
constexpr int MOST_RANK = 4, MOST_TENSORS = 5;
// A view of a storage that was freed, as FSDP frees them, has its own offset for an address. No card's memory begins so low; what does lie
// there is looked at in Python.
constexpr uintptr_t LOWEST_ON_A_GPU = uintptr_t{12} << 30;

// All that a call depends on but for numbers and addresses. Where there is one of something, its stride says nothing.
struct Likeness {
  Device device;
  int32_t rank;
  Type type;
  std::array<int64_t, MOST_RANK> shape = {}, strides = {};

  explicit Likeness(const Tensor& tensor) : device(tensor.device), rank(tensor.rank), type(tensor.type) {
    std::copy_n(tensor.shape, rank, shape.begin());
    std::copy_n(tensor.strides, rank, strides.begin());
  }
  bool operator==(const Tensor& other) const {
    if (other.rank != rank || other.device != device || other.type != type) return false;
    for (int i = 0; i < rank; ++i) {
      if (other.shape[i] != shape[i] || (other.strides[i] != strides[i] && shape[i] != 1)) return false;
    }
    return true;
  }
};

// So many bytes of PyTorch's own memory on a device, or none. It gives them out again in the order of the stream: a kernel
// that was launched before this ends may go on with them.
class Workspace {
 public:
  Workspace(const ExchangeApi& api, Device device, int64_t bytes) {
    const Tensor like{nullptr, device, 1, BYTE, &bytes, nullptr, 0};
    if (api.allocate(&like, &made_, nullptr, [](void*, const char*, const char*) {}) != 0) made_ = nullptr;
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (made_ != nullptr) made_->free(made_);
  }
  void* data() const { return made_ == nullptr ? nullptr : made_->tensor.data; }

 private:
  Managed* made_ = nullptr;
};

struct Call {
  const flash_ladder_plan* plan;
  std::vector<Likeness> like;
  std::vector<flash_ladder_tensor> tensors;  // and behind those that are given a workspace, where the kernel has one

  int64_t workspace_bytes() const { return tensors.size() > like.size() ? tensors.back().bytes : 0; }

  bool is_like(const Tensor* others) const { return std::equal(like.begin(), like.end(), others); }
  // On 16 bytes, in memory, and no result where an input lies.
  bool can_lie_at(void* const* data) const {
    const auto begin = [&](size_t i) { return reinterpret_cast<uintptr_t>(data[i]); };
    const auto end = [&](size_t i) { return begin(i) + static_cast<uintptr_t>(tensors[i].bytes); };
    const uintptr_t lowest = like.front().device.type == CUDA ? LOWEST_ON_A_GPU : 1;
    for (size_t i = 0; i < like.size(); ++i) {
      if (begin(i) % 16 != 0 || begin(i) < lowest) return false;
      for (size_t j = 0; tensors[i].written && j < i; ++j) {
        if (begin(i) < end(j) && begin(j) < end(i)) return false;
      }
    }
    return true;
  }
};

}  // namespace

struct flash_ladder_calls {
  const ExchangeApi* api;
  int count;  // of a call's tensors
  void* (*let_go)();
  void (*take)(void*);
  std::deque<Call> calls = {};     // none is ever moved, for another thread may be in it
  mutable std::mutex adding = {};  // Python without a lock of its own

  const Call* like(const Tensor* tensors) const {
    const std::lock_guard alone(adding);
    const auto call = std::ranges::find_if(calls, [&](const Call& each) { return each.is_like(tensors); });
    return call == calls.end() ? nullptr : &*call;
  }

  bool tensors_of(void* const* objects, Tensor* tensors) const {
    for (int i = 0; i < count; ++i) {
      if (api->tensor_of(objects[i], &tensors[i]) != 0 || tensors[i].rank > MOST_RANK || tensors[i].byte_offset != 0)
        return false;
    }
    return true;
  }
};

flash_ladder_calls* flash_ladder_make_calls(const void* exchange_api, int count, void* (*let_go)(void),
                                            void (*take)(void*)) {
  const auto* const api = static_cast<const ExchangeApi*>(exchange_api);
  if (api->major != 1 || api->tensor_of == nullptr || count > MOST_TENSORS) return nullptr;
  return new flash_ladder_calls{api, count, let_go, take};
}

int flash_ladder_add_call(flash_ladder_calls* calls, const flash_ladder_plan* plan, const flash_ladder_tensor* tensors,
                          int has_workspace, void* const* objects) {
  Tensor of[MOST_TENSORS];
  if (!calls->tensors_of(objects, of)) return FLASH_LADDER_NOT_TAKEN;
  Call call{plan, {}, {tensors, tensors + calls->count + (has_workspace != 0)}};
  for (int i = 0; i < calls->count; ++i) call.like.emplace_back(of[i]);
  const std::lock_guard alone(calls->adding);
  calls->calls.push_back(std::move(call));
  return FLASH_LADDER_DONE;
}

int flash_ladder_call_again(const flash_ladder_calls* calls, void* q, void* k, void* v, void* o, void* lse) {
  if (calls == nullptr) return FLASH_LADDER_NOT_TAKEN;
  void* const objects[MOST_TENSORS] = {q, k, v, o, lse};
  Tensor tensors[MOST_TENSORS];
  if (!calls->tensors_of(objects, tensors)) return FLASH_LADDER_NOT_TAKEN;
  const Call* const call = calls->like(tensors);
  if (call == nullptr) return FLASH_LADDER_NOT_TAKEN;
  void* data[MOST_TENSORS + 1];
  for (int i = 0; i < calls->count; ++i) data[i] = tensors[i].data;
  if (!call->can_lie_at(data)) return FLASH_LADDER_NOT_TAKEN;
  void* stream = nullptr;
  const Device device = tensors[0].device;
  if (device.type == CUDA && calls->api->stream_of(device.type, device.id, &stream) != 0) return FLASH_LADDER_NOT_TAKEN;
  std::optional<Workspace> workspace;
  if (call->workspace_bytes() > 0) {
    workspace.emplace(*calls->api, device, call->workspace_bytes());
    data[calls->count] = workspace->data();
    if (workspace->data() == nullptr) return FLASH_LADDER_NOT_TAKEN;  // the longer way says what is wrong
  }
  void* const thread = calls->let_go();  // a launch may wait until the GPU's queue has room
  const int status =
      flash_ladder_run(call->plan, call->tensors.data(), data, static_cast<int>(call->tensors.size()), stream);
  calls->take(thread);
  return status;
}
