// A UART adapter at the far end of a serial line: bytes become levels of `rx`, levels of `tx` become bytes, bit by bit at
// the baud rate.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>

struct Uart {
    double bit;  // cycles
    std::deque<uint8_t> to_send, received;
    uint32_t sending = 0;  // bits still to be driven, the next one lowest, above them a 1
    double next_drive = 0;
    int sampling = 0;  // samples still to be taken: start, data, stop
    uint32_t sampled = 0;
    double next_sample = 0;

    explicit Uart(double cycles_per_bit) : bit(cycles_per_bit) {}

    // The level to drive from this cycle on, after the one driven until now.
    bool drive(uint64_t cycle, bool now) {
        if (double(cycle) < next_drive) return now;
        if (sending <= 1) {
            if (to_send.empty()) return true;
            sending = 1u << 10 | 1u << 9 | uint32_t(to_send.front()) << 1;
            to_send.pop_front();
            next_drive = double(cycle);
        }
        bool level = sending & 1;
        sending >>= 1;
        next_drive += bit;
        return level;
    }

    // Takes the level of `tx` in this cycle.
    void sample(uint64_t cycle, bool level) {
        if (sampling == 0) {
            if (level) return;
            sampling = 10;
            sampled = 0;
            next_sample = double(cycle) + bit / 2;
        }
        if (double(cycle) < next_sample) return;
        sampled |= uint32_t(level) << (10 - sampling);
        next_sample += bit;
        if (--sampling == 0 && (sampled >> 9 & 1)) received.push_back(uint8_t(sampled >> 1));
    }

    void send(const uint8_t *bytes, size_t count) { to_send.insert(to_send.end(), bytes, bytes + count); }

    // Moves what was received to `bytes`, at most `most`. Returns how many.
    size_t take(uint8_t *bytes, size_t most) {
        size_t count = 0;
        for (; count < most && !received.empty(); count++) {
            bytes[count] = received.front();
            received.pop_front();
        }
        return count;
    }
};
