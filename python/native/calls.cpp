// Calls like one that was made before: from PyTorch's tensors to the launch, without Python (flash_ladder.h).
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "python/native/flash_ladder.h"

// Of Python's stable ABI what is needed, so that there is one build for all: absent where no Python is, and then nothing here is called.
struct PyObject;
struct PyMethodDef {
  const char* name;
  PyObject* (*call)(PyObject* self, PyObject* const* arguments, intptr_t count);
  int flags;
  const char* doc;
};
constexpr int FASTCALL = 0x80;  // METH_FASTCALL
extern "C" {
#define OF_PYTHON __attribute__((weak))
OF_PYTHON PyObject* PyCFunction_NewEx(PyMethodDef* method, PyObject* self, PyObject* module);
OF_PYTHON PyObject* PyLong_FromVoidPtr(void* pointer);
OF_PYTHON void* PyLong_AsVoidPtr(PyObject* number);
OF_PYTHON PyObject* PyObject_CallFunctionObjArgs(PyObject* callable, ...);
OF_PYTHON int PyObject_IsTrue(PyObject* object);
OF_PYTHON PyObject* PyErr_Occurred();
OF_PYTHON void Py_IncRef(PyObject* object);
OF_PYTHON void Py_DecRef(PyObject* object);
OF_PYTHON void* PyEval_SaveThread();
OF_PYTHON void PyEval_RestoreThread(void* thread);
OF_PYTHON extern char _Py_NoneStruct;
#undef OF_PYTHON
}

namespace {

PyObject* none() {
  return reinterpret_cast<PyObject*>(&_Py_NoneStruct);
}
PyObject* new_reference(PyObject* object) {
  Py_IncRef(object);
  return object;
}

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
constexpr int MOST_RANK = 4, MOST_TENSORS = 9;
// Calls that are kept: the last ones, for a cache that grows makes a new one with each token, for all layers.
constexpr size_t MOST_CALLS = 32;
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
  bool is_in_one_piece() const {
    int64_t elements = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (strides[i] != elements && shape[i] != 1) return false;
      elements *= shape[i];
    }
    return true;
  }
};

// So many bytes of PyTorch's own memory on a device, or none. It gives them out again in the order of the stream: a kernel
// that was launched before this ends may go on with them.
class Workspace {
 public:
  Workspace(const ExchangeApi& api, Device device, int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    const Tensor like{nullptr, device, 1, BYTE, &bytes, nullptr, 0};
    if (api.allocate(&like, &made_, nullptr, [](void*, const char*, const char*) {}) != 0) made_ = nullptr;
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (made_ != nullptr) made_->free(made_);
  }
  void* data() const { return made_ == nullptr ? nullptr : made_->tensor.data; }
  bool is_missing() const { return bytes_ > 0 && data() == nullptr; }

 private:
  int64_t bytes_;
  Managed* made_ = nullptr;
};

// For as long as this lives, so does an object of Python's.
struct Keep {
  void operator()(PyObject* object) const { Py_DecRef(object); }
};
using Kept = std::unique_ptr<PyObject, Keep>;

// Q, K, V, O and what else a kernel is told of, as Python gives them; behind them, where new tokens go into a cache first, k and v.
struct Call {
  const flash_ladder_plan* plan;
  std::vector<Likeness> like;
  std::vector<flash_ladder_tensor>
      tensors;  // of `like` those that the kernel is told of, and its workspace, where it has one
  std::vector<flash_ladder_tensor>
      appended;                  // what append is told of: some of `like`, and last the lengths that it writes
  std::vector<int> appended_at;  // in `like`
  int n;                         // new tokens
  int lengths_at;                // of `tensors` the one that is then those lengths
  Kept make_o;                   // of Q
  Kept owner;                    // of the plan

  int given() const { return static_cast<int>(like.size()); }
  // Those of the kernel: fewer than are given by k and v.
  int told() const { return given() - (appended.empty() ? 0 : 2); }
  int64_t workspace_bytes() const { return std::ssize(tensors) > told() ? tensors.back().bytes : 0; }

  // Without an O: one that is made, which lies in one piece.
  bool is_like(const Tensor* others, bool has_o) const {
    for (int i = 0; i < given(); ++i) {
      if (i == O && !has_o ? !like[i].is_in_one_piece() : !(like[i] == others[i])) return false;
    }
    return true;
  }
  // In memory, rows on 16 bytes, and nothing that is written where something lies that is read.
  bool can_lie_at(void* const* data) const {
    const auto begin = [&](int i) { return reinterpret_cast<uintptr_t>(data[i]); };
    const auto of = [&](int i) -> const flash_ladder_tensor& { return i < told() ? tensors[i] : appended[i - told()]; };
    const auto meet = [&](int i, int j) {
      return begin(i) < begin(j) + static_cast<uintptr_t>(of(j).bytes) &&
             begin(j) < begin(i) + static_cast<uintptr_t>(of(i).bytes);
    };
    const uintptr_t lowest = like.front().device.type == CUDA ? LOWEST_ON_A_GPU : 1;
    for (int i = 0; i < given(); ++i) {
      if (begin(i) < lowest || (i <= O && begin(i) % 16 != 0)) return false;
      for (int j = 0; tensors_written(i) && j < given(); ++j) {
        if (i != j && !(i < O && j < O) && meet(i, j)) return false;
      }
    }
    return true;
  }

  static constexpr int O = 3;
  bool tensors_written(int i) const {
    return i < told() && (tensors[i].written || (!appended.empty() && (i == 1 || i == 2)));
  }
};

}  // namespace

struct flash_ladder_calls {
  using Shared = std::shared_ptr<const Call>;  // whoever is in a call holds it; the last one ends with Python's lock
  const ExchangeApi* api;
  int count;                                  // of a call's objects
  PyObject* is_neg;                           // Tensor.is_neg, which refuses what is no tensor
  std::array<Shared, MOST_CALLS> calls = {};  // the newest is the one before `next`
  size_t next = 0;
  mutable std::mutex adding = {};  // Python without a lock of its own; within it nothing of Python's

  Shared like(const Tensor* tensors, bool has_o) const {
    const std::lock_guard alone(adding);
    for (size_t age = 1; age <= MOST_CALLS; ++age) {
      const Shared& call = calls[(next + MOST_CALLS - age) % MOST_CALLS];
      if (call == nullptr) break;
      if (call->is_like(tensors, has_o)) return call;
    }
    return nullptr;
  }
  // In place of the oldest one, which is returned.
  Shared add(Shared call) {
    const std::lock_guard alone(adding);
    calls[next].swap(call);
    next = (next + 1) % MOST_CALLS;
    return call;
  }

  bool tensor_of(PyObject* object, Tensor* tensor) const {
    return api->tensor_of(object, tensor) == 0 && tensor->rank <= MOST_RANK && tensor->byte_offset == 0;
  }
  // Not of a view of which PyTorch would have to negate the numbers first.
  bool plain_tensor_of(PyObject* object, Tensor* tensor) const {
    PyObject* const answer = PyObject_CallFunctionObjArgs(is_neg, object, nullptr);
    if (answer == nullptr) return false;
    const bool is_plain = PyObject_IsTrue(answer) == 0;
    Py_DecRef(answer);
    return is_plain && tensor_of(object, tensor);
  }
};

namespace {

// Starts what a call is, on tensors that are like its own.
int start(const flash_ladder_calls& calls, const Call& call, const Tensor* tensors) {
  void* data[MOST_TENSORS + 1];
  for (int i = 0; i < call.given(); ++i) data[i] = tensors[i].data;
  if (!call.can_lie_at(data)) return FLASH_LADDER_NOT_TAKEN;
  void* stream = nullptr;
  const Device device = tensors[0].device;
  if (device.type == CUDA && calls.api->stream_of(device.type, device.id, &stream) != 0) return FLASH_LADDER_NOT_TAKEN;
  constexpr int64_t ALIGNED = 256;
  const int64_t lengths_at = (call.workspace_bytes() + ALIGNED - 1) / ALIGNED * ALIGNED;
  const Workspace workspace(*calls.api, device, lengths_at + (call.appended.empty() ? 0 : call.appended.back().bytes));
  if (workspace.is_missing()) return FLASH_LADDER_NOT_TAKEN;  // the longer way says what is wrong
  void* const lengths = static_cast<std::byte*>(workspace.data()) + lengths_at;
  void* for_append[MOST_TENSORS + 1];
  for (size_t i = 0; i < call.appended_at.size(); ++i) for_append[i] = data[call.appended_at[i]];
  for_append[call.appended_at.size()] = lengths;
  void* const thread = PyEval_SaveThread();  // a launch may wait until the GPU's queue has room
  int status = FLASH_LADDER_DONE;
  if (!call.appended.empty()) {
    status = flash_ladder_append(call.plan, call.appended.data(), for_append, static_cast<int>(call.appended.size()),
                                 call.n, stream);
    data[call.lengths_at] = lengths;
  }
  data[call.told()] = workspace.data();
  if (status == FLASH_LADDER_DONE)
    status = flash_ladder_run(call.plan, call.tensors.data(), data, static_cast<int>(call.tensors.size()), stream);
  PyEval_RestoreThread(thread);
  return status;
}

PyObject* call_again(PyObject* self, PyObject* const* objects, intptr_t count) {
  const auto& calls = *static_cast<const flash_ladder_calls*>(PyLong_AsVoidPtr(self));
  constexpr int O = Call::O;
  if (count != calls.count) return new_reference(none());
  const bool makes_o = objects[O] == none();
  Tensor tensors[MOST_TENSORS];
  const auto failed = [] { return PyErr_Occurred() == nullptr ? new_reference(none()) : nullptr; };
  for (int i = 0; i < count; ++i) {
    if (!(i == O && makes_o) && !calls.plain_tensor_of(objects[i], &tensors[i])) return failed();
  }
  const flash_ladder_calls::Shared call = calls.like(tensors, !makes_o);
  if (call == nullptr) return new_reference(none());
  PyObject* const o =
      makes_o ? PyObject_CallFunctionObjArgs(call->make_o.get(), objects[0], nullptr) : new_reference(objects[O]);
  if (o == nullptr) return nullptr;
  const bool is_done =
      (!makes_o || calls.tensor_of(o, &tensors[O])) && start(calls, *call, tensors) == FLASH_LADDER_DONE;
  if (is_done) return o;
  Py_DecRef(o);
  return failed();
}

}  // namespace

flash_ladder_calls* flash_ladder_make_calls(const void* exchange_api, int count, void* is_neg) {
  const auto* const api = static_cast<const ExchangeApi*>(exchange_api);
  if (api->major != 1 || api->tensor_of == nullptr || count > MOST_TENSORS || PyCFunction_NewEx == nullptr)
    return nullptr;
  return new flash_ladder_calls{.api = api, .count = count, .is_neg = static_cast<PyObject*>(is_neg)};
}

void* flash_ladder_function_of(flash_ladder_calls* calls) {
  static PyMethodDef method = {"call_again", call_again, FASTCALL, nullptr};
  PyObject* const self = PyLong_FromVoidPtr(calls);
  PyObject* const function = self == nullptr ? nullptr : PyCFunction_NewEx(&method, self, nullptr);
  if (self != nullptr) Py_DecRef(self);
  return function;
}

int flash_ladder_add_call(flash_ladder_calls* calls, const flash_ladder_plan* plan, const flash_ladder_tensor* tensors,
                          int tensor_count, const flash_ladder_tensor* appended, int appended_count, int n,
                          void* const* objects, void* make_o, void* owner) {
  Call call{.plan = plan,
            .like = {},
            .tensors = {tensors, tensors + tensor_count},
            .appended = {appended, appended + appended_count},
            .appended_at = {},
            .n = n,
            .lengths_at = 0,
            .make_o = Kept(new_reference(static_cast<PyObject*>(make_o))),
            .owner = Kept(new_reference(static_cast<PyObject*>(owner)))};
  Tensor of[MOST_TENSORS];
  for (int i = 0; i < calls->count; ++i) {
    if (!calls->tensor_of(static_cast<PyObject*>(objects[i]), &of[i])) return FLASH_LADDER_NOT_TAKEN;
    call.like.emplace_back(of[i]);
  }
  if (calls->like(of, true) != nullptr) return FLASH_LADDER_NOT_TAKEN;
  const auto at = [&](std::string_view name) {
    if (name == "k") return call.told();
    if (name == "v") return call.told() + 1;
    const auto found =
        std::ranges::find(call.tensors, name, [](const auto& each) { return std::string_view(each.name); });
    return static_cast<int>(found - call.tensors.begin());
  };
  for (int i = 0; i + 1 < appended_count; ++i) call.appended_at.push_back(at(appended[i].name));
  call.lengths_at = at("cache_seqlens");
  calls->add(std::make_shared<Call>(std::move(call)));
  return FLASH_LADDER_DONE;
}
