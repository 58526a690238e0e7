/* What the delegate needs of LiteRT's C interface: the order of the fields, as published in tflite/core/c/common.h.
 *
 * The wheel of LiteRT ships no headers and exports no accessors, so the few structs that cross the border are declared
 * here, under names of our own. Fields are only ever appended there. `delegate.cpp` and `tilewright/litert/plan.py`
 * compare what they read with the model before anything is claimed.
 */
#ifndef TILEWRIGHT_LITERT_LAYOUT_H
#define TILEWRIGHT_LITERT_LAYOUT_H

#include <cstddef>
#include <cstdint>

namespace litert {

enum Status : int { kOk = 0, kError = 1 };
enum Allocation : int { kReadOnly = 1, kDynamic = 4 };
/* Of Delegate::flags: shapes may change without the graph being made anew, which leaves it open to LiteRT's own
 * delegate, that runs what we leave. */
enum Flags : int64_t { kAllowDynamicTensors = 1 };
constexpr int kOptional = -1; /* an input that is left out */

/* A length and as many numbers. */
struct Ints {
    int size;
    int data[1];
};

struct Context;
struct Delegate;
struct Node;

struct Tensor {
    int type;
    void* data;
    Ints* dims;
    struct {
        float scale;
        int32_t zero_point;
    } params;
    int allocation_type;
    size_t bytes;
    const void* allocation; /* the model file's memory, a C++ object */
    const char* name;
    Delegate* delegate;
    int buffer_handle;
    bool data_is_stale;
    bool is_variable;
    struct {
        int type;
        void* params;
    } quantization;
    void* sparsity;
    const Ints* dims_signature;
};
static_assert(sizeof(void*) != 8 || sizeof(Tensor) == 112, "tensors lie side by side in an array");

struct Node {
    Ints* inputs;
    Ints* outputs;
    Ints* intermediates;
    Ints* temporaries;
    void* user_data;
    /* more follows */
};

/* Handed over by value. The spare room at the end is zero: a younger LiteRT that has appended fields finds none set. */
struct Registration {
    void* (*init)(Context*, const char* buffer, size_t length);
    void (*free)(Context*, void* buffer);
    Status (*prepare)(Context*, Node*);
    Status (*invoke)(Context*, Node*);
    const char* (*profiling_string)(const Context*, const Node*);
    int32_t builtin_code;
    const char* custom_name;
    int version;
    void* registration_external;
    void* (*async_kernel)(Context*, Node*);
    uint64_t inplace_operator;
    uint64_t spare[8];
};

struct Context {
    size_t tensors_size;
    Status (*GetExecutionPlan)(Context*, Ints** plan);
    Tensor* tensors;
    void* implementation;
    Status (*ResizeTensor)(Context*, Tensor*, Ints* size); /* takes `size`, and frees it with free() */
    void (*ReportError)(Context*, const char* format, ...);
    Status (*AddTensors)(Context*, int count, int* first);
    Status (*GetNodeAndRegistration)(Context*, int index, Node**, Registration**);
    Status (*ReplaceNodeSubsetsWithDelegateKernels)(Context*, Registration, const Ints* nodes, Delegate*);
    /* more follows */
};

/* What `init` of a delegate's kernel gets as its buffer. */
struct DelegateParams {
    Delegate* delegate;
    Ints* nodes_to_replace;
    Ints* input_tensors;
    Ints* output_tensors;
};

struct Delegate {
    void* data;
    Status (*Prepare)(Context*, Delegate*);
    Status (*CopyFromBufferHandle)(Context*, Delegate*, int handle, Tensor*);
    Status (*CopyToBufferHandle)(Context*, Delegate*, int handle, Tensor*);
    void (*FreeBufferHandle)(Context*, Delegate*, int* handle);
    int64_t flags;
    void* opaque_delegate_builder;
    uint64_t spare[8]; /* as above */
};

} /* namespace litert */

#endif
