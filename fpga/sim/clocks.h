// Rising edges of the clocks of one PLL, in order of time. Times are whole numbers of a unit that all periods and phases
// are whole numbers of, so that two edges at the same time are found to be that.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

struct Clock {
    int64_t period, first;
};

// The first clock is the one that cycles are counted in: its first edge is at time 0, those of the others are at `first`
// and later.
struct Clocks {
    std::vector<Clock> all;
    std::vector<int64_t> next;  // edge of each

    explicit Clocks(std::vector<Clock> clocks) : all(std::move(clocks)), next(all.size()) { restart(); }

    void restart() {
        for (size_t i = 0; i < all.size(); i++) next[i] = all[i].first;
    }

    int64_t time() const { return *std::min_element(next.begin(), next.end()); }

    // Goes on to the next time with an edge: bit i of the result says whether clock i has one.
    uint32_t take() {
        uint32_t found = 0;
        int64_t now = time();
        for (size_t i = 0; i < all.size(); i++) {
            if (next[i] != now) continue;
            found |= 1u << i;
            next[i] += all[i].period;
        }
        return found;
    }
};
