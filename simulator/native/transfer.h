// LOAD and STORE: one memcpy per run where its rows are contiguous.
#pragma once

#include "machine.h"

namespace tw {

// The bytes offset..offset+nbytes of a region.
inline uint8_t *Machine::span(uint32_t region, uint32_t offset, uint64_t nbytes, bool write) {
    const tw_region &g = r_.regions[region];
    uint64_t address;  // no sum below can wrap around: each is compared by a difference
    const bool wraps = __builtin_add_overflow(g.base, uint64_t(offset), &address);
    const bool allowed = write ? g.flags & 2 : g.flags & 1;
    if (nbytes > g.size || offset > g.size - nbytes || !allowed)
        throw Fault{TW_ERROR_CODE_WINDOW, address, 0, region, offset, nbytes};
    if (wraps || nbytes > r_.memory_bytes || address > r_.memory_bytes - nbytes)
        throw Fault{uint64_t(write ? TW_ERROR_CODE_BUS_WRITE : TW_ERROR_CODE_BUS_READ), address, 0, region, offset, nbytes};
    return r_.memory + address;
}

inline uint64_t bus_bytes_of(uint64_t offset, uint64_t nbytes, uint64_t bus) {
    return nbytes ? ((offset + nbytes + bus - 1) / bus - offset / bus) * bus : 0;
}

// The scratchpad of a LOAD, its row size and its rows.
inline uint8_t *Machine::row_bytes(uint32_t target, uint64_t &bytes, int64_t &rows) {
    switch (target) {
    case TW_MEMORY_ACT: bytes = BI, rows = c_.act_rows; return reinterpret_cast<uint8_t *>(r_.act);
    case TW_MEMORY_WGT: bytes = BI * BO, rows = c_.wgt_tiles; return reinterpret_cast<uint8_t *>(r_.wgt);
    case TW_MEMORY_PRM: bytes = BI * 8, rows = c_.prm_rows; return reinterpret_cast<uint8_t *>(r_.prm);
    default: bytes = 256, rows = c_.lut_tables; return r_.lut;
    }
}

// Brings the operand copies up to date with rows row..row+count-1.
inline void Machine::written(uint32_t target, int64_t row, int64_t count) {
    if (target == TW_MEMORY_ACT) {
        const int8_t *from = r_.act + row * BI;
        act_t *to = operands_.act + row * BI;
        const int64_t n = count * BI;
        TW_LANES for (int64_t i = 0; i < n; i++) to[i] = operand(from[i]);
    }
    if (target == TW_MEMORY_WGT) std::memset(operands_.wgt_fresh + row, 0, size_t(count));
}

// Weights of 4 bits, two a byte, as int8.
inline void unpack(uint8_t *to, const uint8_t *from, uint64_t nbytes) {
    TW_LANES for (uint64_t i = 0; i < nbytes; i++) {
        to[2 * i] = uint8_t(((from[i] & 15) ^ 8) - 8);
        to[2 * i + 1] = uint8_t((from[i] >> 4 ^ 8) - 8);
    }
}

// LOAD, and with `packed` LOAD_PACKED, which has its fields in the same places.
inline void Machine::load(tw_word w, bool packed) {
    const Level &y_loop = load_box_[0], &z_loop = load_box_[1];
    const uint32_t target = tw_load_target(w), region = tw_load_region(w);
    const uint64_t count = tw_load_count(w), run_rows = pad_.left + count + pad_.right;
    const uint64_t y_rows = pad_.top + y_loop.count + pad_.bottom;
    if (!run_rows || !y_rows || !z_loop.count) throw Fault{TW_ERROR_CODE_ILLEGAL_OPERAND};
    uint64_t bytes;
    int64_t rows;
    uint8_t *memory = row_bytes(target, bytes, rows);
    const uint64_t data_row_bytes = packed ? bytes / 2 : bytes, data_bytes = count * data_row_bytes;
    const uint64_t data_rows = uint64_t(y_loop.count) * z_loop.count * count;  // below 2**48
    spend(TW_ENGINE_LOAD, run_rows * y_rows * z_loop.count - data_rows + data_rows * data_row_bytes / c_.bus_bytes);

    const uint8_t fill = pad_.fill;
    for (int64_t z = 0; z < z_loop.count; z++)
        for (uint64_t y = 0; y < y_rows; y++) {
            heed();
            const uint8_t *data = nullptr;
            if (y >= pad_.top && y < pad_.top + uint64_t(y_loop.count) && data_bytes) {
                const uint32_t offset = offset_of(tw_load_offset(w) + z * z_loop.stride[1] + int64_t(y - pad_.top) * y_loop.stride[1]);
                data = span(region, offset, data_bytes, false);
                r_.bytes_read += bus_bytes_of(offset, data_bytes, c_.bus_bytes);
            }
            const int64_t first = wrapped(tw_load_row(w) + z * z_loop.stride[0] + int64_t(y) * y_loop.stride[0]);
            if (first + int64_t(run_rows) > rows)  // after an error, rows may hold anything
                checked(MemoryId(target), std::max(first, rows), rows);
            uint8_t *to = memory + first * bytes;
            if (data) {
                std::memset(to, fill, pad_.left * bytes);
                if (packed) unpack(to + pad_.left * bytes, data, data_bytes);
                else std::memcpy(to + pad_.left * bytes, data, data_bytes);
                std::memset(to + (pad_.left + count) * bytes, fill, pad_.right * bytes);
            } else {
                std::memset(to, fill, run_rows * bytes);
            }
            written(target, first, int64_t(run_rows));
        }
}

inline void Machine::load_coded(tw_word w) {
    const uint64_t rounds = BI * BO / std::max(1u, c_.weight_codes), bus = c_.bus_bytes;
    const uint32_t mode = tw_load_coded_mode(w), beats = tw_load_coded_beats(w);
    if (codes_.open(mode, rounds * tw_load_coded_count(w), beats) == WeightCodes::FAULT) throw Fault{TW_ERROR_CODE_CODE};
    const uint8_t *data = nullptr;
    int64_t row = tw_load_coded_row(w);
    for (uint64_t at = 0, cycles = 1;; cycles++) {
        heed();
        if (codes_.needs_beat()) {
            const uint32_t offset = offset_of(tw_load_coded_offset(w)) & ~uint32_t(bus - 1);
            if (!data) data = span(tw_load_coded_region(w), offset, beats * bus, false) - bus;
            data += bus;
            r_.bytes_read += bus;
        }
        const WeightCodes::Outcome outcome = codes_.cycle(data);
        if (codes_.has_weights()) {
            const int64_t tile = checked(WGT, row, c_.wgt_tiles);
            std::memcpy(r_.wgt + tile * BI * BO + at * c_.weight_codes, codes_.weights(), c_.weight_codes);
            written(TW_MEMORY_WGT, tile, 1);
            at = (at + 1) % rounds;
            row += at == 0;
        }
        if (outcome == WeightCodes::FAULT) throw Fault{TW_ERROR_CODE_CODE};
        if (outcome == WeightCodes::DONE) return spend(TW_ENGINE_LOAD, cycles);
    }
}

inline void Machine::store(tw_word w) {
    const Level &y_loop = store_box_[0], &z_loop = store_box_[1];
    const uint64_t count = tw_store_count(w), nbytes = count * BI;
    spend(TW_ENGINE_STORE, uint64_t(z_loop.count) * y_loop.count * nbytes / c_.bus_bytes);
    for (int64_t z = 0; z < z_loop.count; z++)
        for (int64_t y = 0; y < y_loop.count; y++) {
            heed();
            const uint32_t offset = offset_of(tw_store_offset(w) + z * z_loop.stride[1] + y * y_loop.stride[1]);
            uint8_t *to = span(tw_store_region(w), offset, nbytes, true);
            r_.bytes_written += bus_bytes_of(offset, nbytes, c_.bus_bytes);
            const int64_t first = wrapped(tw_store_row(w) + z * z_loop.stride[0] + y * y_loop.stride[0]);
            if (first + int64_t(count) <= c_.act_rows) {
                std::memcpy(to, r_.act + first * BI, nbytes);
                continue;
            }
            for (uint64_t x = 0; x < count; x++)
                std::memcpy(to + x * BI, r_.act + checked(ACT, first + int64_t(x), c_.act_rows) * BI, BI);
        }
}

}  // namespace tw
