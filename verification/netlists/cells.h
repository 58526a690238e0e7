// The cells of an FPGA as numbers: nets, settings, contents. Mirrored by verification/netlists/cells.py; what they are of a family is
// said by verification/netlists/ecp5_cells.py and verification/netlists/gowin_cells.py.
#pragma once
#include <cstdint>
#include <vector>

namespace {

using Numbers = const int32_t *;

struct Lut {
    int32_t in[5], out;
    uint32_t init;
};

// Flags: 1 = the value of a reset, 2 = a reset needs no clock, 4, 8 = enable and reset are inverted, 16 = a reset needs the
// enable.
struct Register {
    int32_t d, enable, reset, q, flags, clock;
};

struct SmallRam {
    int32_t read[4], write[4], in[4], out[4], enable;
    int32_t init[2], clock;
};

struct Multiplier {
    int32_t a[18], b[18], a_signed, b_signed, out[36], registered, clock;
};

// One port of a block RAM. `writes`: 0 = the output stays in a write, 1 = it shows what is written, 2 = what was there.
struct Port {
    int32_t address[14], in[18], out[18], clock_enable, write_enable, output_enable, reset;
    int32_t width, registered, writes;
};

constexpr int WORDS = 1024;  // of 18 bits

struct Block {
    Port port[2];
    int32_t written;  // whether anything can write it
    int32_t init[WORDS], clock;
};

template <class T> std::vector<T> cells(Numbers numbers, int32_t count) {
    const T *first = reinterpret_cast<const T *>(numbers);
    return std::vector<T>(first, first + count);
}

}  // namespace
