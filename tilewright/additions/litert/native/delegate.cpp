/* LiteRT's external delegate: a plugin that hands parts of a graph to Tilewright's compiler and devices.
 *
 * The library holds no state but the delegates LiteRT has made. What to take and how to run it is decided in Python,
 * which the functions of `Bridge` reach. Nothing here may end the process: what cannot be done is reported to LiteRT.
 */
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "bridge.h"
#include "layout.h"

using namespace litert;

namespace {

Bridge bridge_functions;
std::atomic<bool> bridge_set{false};

/* Python's side, null before it is set and after Python has begun to shut down. */
const Bridge* bridge() { return bridge_set.load(std::memory_order_acquire) ? &bridge_functions : nullptr; }

constexpr const char* kNoPython = "Python has shut down, and Tilewright with it";

/* Memory that may not be there is looked at through a pipe: the kernel says so where we would crash. */
class Probe {
  public:
    Probe() {
        if (pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) ends_[0] = ends_[1] = -1;
    }
    ~Probe() {
        if (ends_[0] >= 0) {
            close(ends_[0]);
            close(ends_[1]);
        }
    }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

    /* Copies up to a page. False: it cannot be read. */
    bool read(const void* from, void* into, size_t bytes) const {
        if (from == nullptr || ends_[0] < 0) return false;
        ssize_t sent = write(ends_[1], from, bytes), got = 0;
        while (sent > got) {
            ssize_t n = ::read(ends_[0], static_cast<char*>(into) + got, static_cast<size_t>(sent - got));
            if (n <= 0) return false;
            got += n;
        }
        return sent == static_cast<ssize_t>(bytes);
    }

  private:
    int ends_[2];
};

/* A delegate as LiteRT sees it, and its number in Python, which is given back when the last kernel has gone too. */
struct Opened {
    int64_t number = 0;
    ~Opened() {
        const Bridge* python = bridge();
        if (python != nullptr && number != 0) python->close(number);
    }
};

struct Made {
    Delegate delegate{};
    std::shared_ptr<Opened> opened;
};

/* A part of the graph that runs on our side. */
struct Kernel {
    std::shared_ptr<Opened> opened;
    int64_t part = 0;
    std::vector<int> inputs, outputs;
    std::vector<int32_t> shapes; /* of all tensors, when it was last shaped */

    ~Kernel() {
        const Bridge* python = bridge();
        if (python != nullptr && part != 0) python->release(part);
    }
};

/* The plan `Prepare` has made in this thread: LiteRT calls `init` of the kernels while it takes the nodes. */
thread_local int64_t current_plan = 0;

void append(std::vector<int32_t>& words, const Ints* list) {
    int count = list == nullptr ? 0 : list->size;
    words.push_back(count);
    if (count > 0) words.insert(words.end(), list->data, list->data + count);
}

std::vector<int32_t> shapes_of(const Context* context) {
    std::vector<int32_t> words;
    words.reserve(context->tensors_size * 5);
    for (size_t i = 0; i < context->tensors_size; ++i) append(words, context->tensors[i].dims);
    return words;
}

/* Whether a list lies where we think, with a believable length. */
bool believable(const Probe& probe, const Ints* list, int most) {
    int size = 0;
    return list == nullptr || (probe.read(list, &size, sizeof size) && size >= 0 && size <= most);
}

constexpr size_t kMostTensors = 1 << 24;

/* Whether LiteRT's structs are laid out as in layout.h, as far as that can be seen without following wrong pointers. */
bool plausible(const Probe& probe, const Context* context) {
    Context copy;
    if (!probe.read(context, &copy, sizeof copy) || copy.tensors_size == 0 || copy.tensors_size > kMostTensors ||
        copy.GetExecutionPlan == nullptr || copy.GetNodeAndRegistration == nullptr ||
        copy.ReplaceNodeSubsetsWithDelegateKernels == nullptr || copy.ResizeTensor == nullptr ||
        copy.ReportError == nullptr)
        return false;
    for (size_t i = 0; i < copy.tensors_size; ++i) {
        Tensor tensor;
        char letter;
        if (!probe.read(copy.tensors + i, &tensor, sizeof tensor) || !believable(probe, tensor.dims, 64) ||
            tensor.type < 0 || tensor.type > 255 || tensor.allocation_type < 0 || tensor.allocation_type > 255 ||
            (tensor.name != nullptr && !probe.read(tensor.name, &letter, 1)))
            return false;
    }
    return true;
}

struct Bytes {
    const uint8_t* start = nullptr;
    size_t count = 0;
};

/* The model's flatbuffer. Constant tensors point into it and at the object that owns it, which has its address and its
 * size side by side: of its first words the pair that begins a TFLite file and encloses the tensor. */
Bytes find_model(const Probe& probe, const Context* context) {
    constexpr size_t kWords = 10;
    for (size_t i = 0; i < context->tensors_size; ++i) {
        const Tensor& tensor = context->tensors[i];
        if (tensor.allocation_type != kReadOnly || tensor.allocation == nullptr || tensor.data == nullptr) continue;
        uintptr_t words[kWords];
        size_t known = kWords;
        while (known >= 2 && !probe.read(tensor.allocation, words, known * sizeof *words)) --known;
        for (size_t k = 0; k + 1 < known; ++k) {
            const auto* start = reinterpret_cast<const uint8_t*>(words[k]);
            size_t count = words[k + 1];
            auto at = reinterpret_cast<uintptr_t>(tensor.data);
            char head[8];
            if (count > sizeof head && at >= words[k] && at - words[k] <= count &&
                tensor.bytes <= count - (at - words[k]) && probe.read(start, head, sizeof head) &&
                std::memcmp(head + 4, "TFL3", 4) == 0 && probe.read(start + count - 1, head, 1))
                return {start, count};
        }
    }
    return {};
}

Status failed(Context* context, const char* text) {
    context->ReportError(context, "Tilewright: %s\n", text);
    return kError;
}

/* What LiteRT calls must not raise. */
template <typename Step>
Status guarded(Context* context, Step step) {
    try {
        return step();
    } catch (const std::bad_alloc&) {
        return failed(context, "out of memory");
    }
}

/* Gives the outputs the shapes that follow from the tensors' shapes now. */
Status shape_outputs(Context* context, Kernel& kernel) {
    std::vector<int32_t> shapes = shapes_of(context);
    if (shapes == kernel.shapes) return kOk;
    const Bridge* python = bridge();
    if (python == nullptr) return failed(context, kNoPython);
    std::vector<int32_t> found(kernel.outputs.size() * 65);
    char error[kErrorBytes] = "";
    int64_t words = python->shape(kernel.part, shapes.data(), shapes.size(), found.data(), found.size(), error);
    if (words < 0) return failed(context, error);
    size_t at = 0;
    for (int output : kernel.outputs) {
        Tensor* tensor = &context->tensors[output];
        if (at >= static_cast<size_t>(words) || found[at] < 0 || at + 1 + found[at] > static_cast<size_t>(words))
            return failed(context, "the shapes of the outputs are incomplete");
        const int32_t* wanted = &found[at];
        at += 1 + static_cast<size_t>(found[at]);
        size_t size = (1 + static_cast<size_t>(wanted[0])) * sizeof *wanted;
        bool dynamic = tensor->allocation_type == kDynamic;
        if (!dynamic && tensor->dims != nullptr && std::memcmp(tensor->dims, wanted, size) == 0) continue;
        auto* dims = static_cast<Ints*>(std::malloc(size + sizeof(Ints)));
        if (dims == nullptr) return failed(context, "out of memory");
        std::memcpy(dims, wanted, size);
        Status status = context->ResizeTensor(context, tensor, dims);
        if (status != kOk) return status;
    }
    kernel.shapes = shapes_of(context);
    return kOk;
}

void* const kInitFailed = reinterpret_cast<void*>(-1); /* what LiteRT takes as a failure */

void* make_kernel(Context* context, const char* buffer) {
    const auto* params = reinterpret_cast<const DelegateParams*>(buffer);
    const Bridge* python = bridge();
    if (python == nullptr || params == nullptr || params->delegate == nullptr) {
        failed(context, kNoPython);
        return kInitFailed;
    }
    auto kernel = std::make_unique<Kernel>();
    kernel->opened = static_cast<Made*>(params->delegate->data)->opened;
    std::vector<int32_t> lists;
    append(lists, params->nodes_to_replace);
    append(lists, params->input_tensors);
    append(lists, params->output_tensors);
    for (int i = 0; i < params->input_tensors->size; ++i) {
        int index = params->input_tensors->data[i];
        if (index != kOptional) kernel->inputs.push_back(index);
    }
    const Ints* outputs = params->output_tensors;
    kernel->outputs.assign(outputs->data, outputs->data + outputs->size);
    char error[kErrorBytes] = "";
    kernel->part = python->part(current_plan, lists.data(), lists.size(), error);
    if (kernel->part == 0) {
        failed(context, error);
        return kInitFailed;
    }
    return kernel.release();
}

void* kernel_init(Context* context, const char* buffer, size_t) {
    void* kernel = kInitFailed;
    guarded(context, [&] {
        kernel = make_kernel(context, buffer);
        return kOk;
    });
    return kernel;
}

void kernel_free(Context*, void* data) {
    if (data != nullptr && data != kInitFailed) delete static_cast<Kernel*>(data);
}

Status prepare_kernel(Context* context, Node* node) {
    Kernel& kernel = *static_cast<Kernel*>(node->user_data);
    bool dynamic = false;
    for (int index : kernel.inputs) dynamic = dynamic || context->tensors[index].allocation_type == kDynamic;
    kernel.shapes.clear();
    if (!dynamic) return shape_outputs(context, kernel);
    for (int index : kernel.outputs) { /* their sizes follow when it runs */
        Tensor& tensor = context->tensors[index];
        if (tensor.allocation_type != kDynamic) {
            tensor.allocation_type = kDynamic;
            tensor.data = nullptr;
        }
    }
    return kOk;
}

Status run_kernel(Context* context, Node* node) {
    Kernel& kernel = *static_cast<Kernel*>(node->user_data);
    bool dynamic = kernel.shapes.empty();
    for (int index : kernel.inputs) dynamic = dynamic || context->tensors[index].allocation_type == kDynamic;
    if (dynamic) {
        Status status = shape_outputs(context, kernel);
        if (status != kOk) return status;
    }
    const Bridge* python = bridge();
    if (python == nullptr) return failed(context, kNoPython);
    std::vector<void*> places;
    std::vector<size_t> bytes;
    for (const auto* indices : {&kernel.inputs, &kernel.outputs}) {
        for (int index : *indices) {
            places.push_back(context->tensors[index].data);
            bytes.push_back(context->tensors[index].bytes);
        }
    }
    char error[kErrorBytes] = "";
    if (python->run(kernel.part, places.data(), bytes.data(), places.size(), error) == 0)
        return failed(context, error);
    return kOk;
}

Status kernel_prepare(Context* context, Node* node) {
    return guarded(context, [&] { return prepare_kernel(context, node); });
}

Status kernel_invoke(Context* context, Node* node) {
    return guarded(context, [&] { return run_kernel(context, node); });
}

Status take_nodes(Context* context, Delegate* delegate, Made& made) {
    const Bridge* python = bridge();
    if (python == nullptr) return kOk;
    Probe probe;
    if (!plausible(probe, context)) { /* a LiteRT we do not know keeps its graph */
        uint8_t none = 0;
        python->plan(made.opened->number, nullptr, 0, nullptr, 0, nullptr, 0, &none);
        return kOk;
    }
    Ints* listed = nullptr;
    if (context->GetExecutionPlan(context, &listed) != kOk || !believable(probe, listed, 1 << 24)) return kOk;
    std::vector<int> plan;
    if (listed != nullptr) plan.assign(listed->data, listed->data + listed->size);
    std::vector<int32_t> nodes;
    for (int index : plan) {
        Node* node = nullptr;
        Registration* registration = nullptr;
        if (context->GetNodeAndRegistration(context, index, &node, &registration) != kOk || node == nullptr ||
            !believable(probe, node->inputs, 1 << 20) || !believable(probe, node->outputs, 1 << 20))
            return kOk;
        nodes.push_back(1);
        nodes.push_back(index);
        append(nodes, node->inputs);
        append(nodes, node->outputs);
    }
    std::vector<int32_t> tensors = shapes_of(context);
    Bytes model = find_model(probe, context);
    std::vector<uint8_t> take(plan.size() + 1);
    int64_t number = python->plan(made.opened->number, model.start, model.count, nodes.data(), nodes.size(),
                                  tensors.data(), tensors.size(), take.data());
    if (number < 0) return failed(context, "interrupted");
    if (number == 0) return kOk;
    std::vector<int> chosen(1, 0);
    for (size_t k = 0; k < plan.size(); ++k)
        if (take[k]) chosen.push_back(plan[k]);
    chosen[0] = static_cast<int>(chosen.size()) - 1;
    Registration registration{};
    registration.init = kernel_init;
    registration.free = kernel_free;
    registration.prepare = kernel_prepare;
    registration.invoke = kernel_invoke;
    registration.builtin_code = 51; /* DELEGATE */
    registration.custom_name = "Tilewright";
    registration.version = 1;
    current_plan = number;
    Status status = context->ReplaceNodeSubsetsWithDelegateKernels(
        context, registration, reinterpret_cast<const Ints*>(chosen.data()), delegate);
    current_plan = 0;
    python->forget(number);
    return status;
}

Status delegate_prepare(Context* context, Delegate* delegate) {
    return guarded(context, [&] { return take_nodes(context, delegate, *static_cast<Made*>(delegate->data)); });
}

} /* namespace */

extern "C" {

/* Called by `tilewright.litert_delegate()`; null when Python shuts down. */
__attribute__((visibility("default"))) void tilewright_litert_connect(const Bridge* functions) {
    bridge_set.store(false, std::memory_order_release);
    if (functions == nullptr) return;
    bridge_functions = *functions;
    bridge_set.store(true, std::memory_order_release);
}

/* For the tests of both sides: how large the structs are here. */
__attribute__((visibility("default"))) size_t tilewright_litert_bridge_bytes() { return sizeof(Bridge); }

__attribute__((visibility("default"))) Delegate* tflite_plugin_create_delegate(char** names, char** values,
                                                                                size_t count,
                                                                                void (*report)(const char*)) {
    /* LiteRT's Python package hands the count over as an int: the upper half of the register is not defined. */
    count = static_cast<uint32_t>(count);
    const Bridge* python = bridge();
    char error[kErrorBytes] = "call tilewright.litert_delegate() in this process first";
    if (python != nullptr) {
        auto made = std::unique_ptr<Made>(new (std::nothrow) Made);
        int64_t number = made == nullptr ? 0 : python->open(names, values, count, error);
        if (number != 0) {
            made->opened = std::make_shared<Opened>();
            made->opened->number = number;
            made->delegate.data = made.get();
            made->delegate.Prepare = delegate_prepare;
            made->delegate.flags = kAllowDynamicTensors;
            return &made.release()->delegate;
        }
    }
    if (report != nullptr) report(error);
    return nullptr;
}

__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(Delegate* delegate) {
    if (delegate != nullptr) delete static_cast<Made*>(delegate->data);
}

}
