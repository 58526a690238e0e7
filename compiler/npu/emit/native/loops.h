// Loop nests: levels joined where they walk on evenly, and the rows that a nest touches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace tilewright {

// One level: how often it runs, and how far each operand moves; operands that are not there move by 0.
constexpr int OPERANDS = 4;
struct Loop {
    int64_t count;
    int64_t stride[OPERANDS];
};
using Nest = std::vector<Loop>;

// Innermost first: drops single iterations, and joins levels that walk on evenly.
inline Nest folded(const Loop *loops, size_t length) {
    Nest nest;
    for (size_t i = 0; i < length; i++) {
        const Loop &loop = loops[i];
        if (loop.count == 1) continue;
        if (!nest.empty()) {
            Loop &inner = nest.back();
            bool even = true;
            for (int k = 0; k < OPERANDS; k++) even &= loop.stride[k] == inner.count * inner.stride[k];
            if (even) {
                inner.count *= loop.count;
                continue;
            }
        }
        nest.push_back(loop);
    }
    return nest;
}

// The spaces that hazards are found in: four scratchpads by their number in the ISA, ACC and the arena.
enum Space { ACC = 4, MEMORY = 5, SPACES = 6 };

// Rows start..start+length-1 of a space, `times` times at a stride; or bytes of the arena, once.
struct Access {
    int space;
    int64_t start, length, times, stride;
};

// How often rows are walked, and the stride of it.
struct Dim {
    int64_t count, stride;
};

// More separate spans than this are covered by one hull instead.
constexpr size_t MOST_SPANS = 64;

// Adds the rows that a walk touches, in few pieces; of memory some more.
//   grain: rows that belong together at each index.
inline void add_spans(std::vector<Access> &found, int space, int64_t base, std::vector<Dim> dims, int64_t grain = 1) {
    const bool rough = space == MEMORY;  // small gaps do not count, and spans are not repeated
    dims.erase(std::remove_if(dims.begin(), dims.end(), [](const Dim &d) { return d.count <= 1 || !d.stride; }),
               dims.end());
    std::stable_sort(dims.begin(), dims.end(),
                     [](const Dim &a, const Dim &b) { return std::llabs(a.stride) < std::llabs(b.stride); });
    int64_t length = grain;
    std::vector<Dim> outer;
    for (auto [count, stride] : dims) {
        if (stride < 0) {
            base += (count - 1) * stride;
            stride = -stride;
        }
        if (stride <= (rough ? 2 * length + 2 : length) && outer.empty()) length += (count - 1) * stride;
        else outer.push_back({count, stride});
    }
    Dim repeated{1, 0};
    if (!rough && !outer.empty()) {
        auto most = std::max_element(outer.begin(), outer.end(), [](const Dim &a, const Dim &b) {
            return a.count != b.count ? a.count < b.count : a.stride < b.stride;
        });
        repeated = *most;
        outer.erase(most);
    }
    std::vector<int64_t> starts{base};
    for (auto [count, stride] : outer) {
        if (starts.size() * count > MOST_SPANS) {
            length += (count - 1) * stride;
            continue;
        }
        const size_t before = starts.size();
        for (int64_t i = 1; i < count; i++)
            for (size_t s = 0; s < before; s++) starts.push_back(starts[s] + i * stride);
    }
    for (int64_t start : starts) found.push_back({space, start, length, repeated.count, repeated.stride});
}

}  // namespace tilewright
