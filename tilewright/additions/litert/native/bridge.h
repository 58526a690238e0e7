/* What the library asks of Python. `tilewright/litert/bridge.py` sets these functions, each of which takes the GIL.
 *
 * Delegates, plans and parts are numbers that Python hands out, from 1; 0 is "none". Lists of lists come as one array
 * of 32-bit integers, each list behind its length. `error` has room for kErrorBytes, the text ends with a zero.
 */
#ifndef TILEWRIGHT_LITERT_BRIDGE_H
#define TILEWRIGHT_LITERT_BRIDGE_H

#include <cstddef>
#include <cstdint>

constexpr size_t kErrorBytes = 1024;

struct Bridge {
    /* A delegate with options as names and values. 0: `error` says why not. */
    int64_t (*open)(const char* const* names, const char* const* values, size_t count, char* error);
    void (*close)(int64_t delegate);

    /* Which nodes to take. `model` is the flatbuffer or null; `nodes` has for every node its index alone, its inputs,
     * its outputs; `tensors` the shape of every tensor. `take[k]` is set for the k-th node. 0: none is taken;
     * negative: the user has interrupted it. */
    int64_t (*plan)(int64_t delegate, const uint8_t* model, size_t model_bytes, const int32_t* nodes,
                    size_t node_words, const int32_t* tensors, size_t tensor_words, uint8_t* take);
    void (*forget)(int64_t plan);

    /* A part of a plan that LiteRT has formed: three lists, its nodes, input tensors and output tensors. */
    int64_t (*part)(int64_t plan, const int32_t* lists, size_t words, char* error);
    void (*release)(int64_t part);

    /* The shapes of a part's outputs, for tensors of these shapes: as many words as written to `result`, at most
     * `room`. Negative: `error` says why not. */
    int64_t (*shape)(int64_t part, const int32_t* tensors, size_t tensor_words, int32_t* result, size_t room,
                     char* error);

    /* Runs a part, whose inputs and outputs lie at these addresses and have these sizes. 0: `error` says why not. */
    int64_t (*run)(int64_t part, void* const* places, const size_t* bytes, size_t count, char* error);
};

#endif
