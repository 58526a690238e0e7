// The words of a stream of coded weights, in the order in which the decoder takes them (isa/codes.py).
//
// Between two tables lanes are encoded on their own, from the last weight to the first. Then the decoder's cycles are
// counted forward, which tells the order of the words and the beats that each instruction takes.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

struct Symbol {
    uint32_t count, start, share, number;  // slots, the first of them, log2 of symbols in a slot, which one of these
};

struct Rule {
    uint32_t slot_bits, word_bits, part_bits, start_rounds, reserve, queue_beats;
};

// An instruction: words of a table, or rounds of weights.
struct Load {
    int64_t table, count;
};

struct Lane {
    std::vector<uint16_t> words;
    size_t next = 0;
    uint32_t reserve = 0;
};

// All weights of a lane, its words the last one first; `needs` gets the lane's bit in rounds after which it takes one.
uint64_t encode(const uint8_t *weights, int64_t rounds, int lanes, int lane, const Symbol *symbols, const Rule &rule,
                uint64_t x, uint64_t *needs, std::vector<uint16_t> &words) {
    const uint64_t bit = uint64_t(1) << lane;
    for (int64_t r = rounds - 1; r >= 0; r--) {
        const Symbol &s = symbols[weights[r * lanes + lane]];
        const uint64_t factor = (uint64_t(s.count) << rule.part_bits) >> s.share;
        needs[r] &= ~bit;
        if (x >= factor << rule.word_bits) {
            words.push_back(uint16_t(x));
            x >>= rule.word_bits;
            needs[r] |= bit;
        }
        const uint64_t high = s.share ? x << s.share | s.number : x / s.count, offset = s.share ? 0 : x % s.count;
        x = high << rule.slot_bits | (s.start + offset);
    }
    return x;
}

// The weights between two tables. Returns false if a first state cannot be reached: no symbol has slots enough.
bool encode_lanes(const uint8_t *weights, int64_t rounds, std::vector<Lane> &lanes, const Symbol *symbols,
                  const Rule &rule, uint64_t *needs) {
    Symbol widest = symbols[0];
    for (int s = 1; s < 256; s++)
        if (!symbols[s].share && (widest.share || symbols[s].count > widest.count)) widest = symbols[s];
    if (widest.share || !widest.count) return false;
    const uint64_t low = uint64_t(1) << (rule.slot_bits + rule.part_bits);
    std::vector<uint16_t> words;
    for (size_t lane = 0; lane < lanes.size(); lane++) {
        words.clear();
        const uint64_t x = encode(weights, rounds, int(lanes.size()), int(lane), symbols, rule, low, needs, words);
        // The first word makes the state whose round ends with the high bits of the state that is wanted.
        const uint64_t high = x >> rule.word_bits, first = high / widest.count;
        if (first >> (rule.word_bits - rule.slot_bits)) return false;
        words.push_back(uint16_t(x));
        words.push_back(uint16_t(first << rule.slot_bits | (widest.start + high % widest.count)));
        lanes[lane].words.insert(lanes[lane].words.end(), words.rbegin(), words.rend());
    }
    return true;
}

// The decoder's cycles.
class Order {
  public:
    Order(std::vector<Lane> &lanes, const Rule &rule, int per_beat, uint16_t *stream)
        : lanes_(lanes), rule_(rule), per_beat_(per_beat), stream_(stream) {}

    int64_t taken = 0;   // beats
    int64_t needed = 0;  // words up to the last one that is not made up

    void table(const uint16_t *words, int64_t count, int64_t slots) {
        int64_t at = 0, made = 0;
        const int count_bits = int(rule_.slot_bits);
        for (int64_t left = 0; made < slots;) {
            const bool beat = wants();
            if (level_) {
                const int64_t n = words[at] & ((1 << count_bits) - 1), run = (words[at] >> count_bits & 31) + 1;
                if (!left) left = n ? n * run : 1;
                if (n) made++;
                if (--left == 0) put(words[at++]);
            }
            take(beat);
        }
    }

    void weights(const uint64_t *needs, int64_t rounds, bool starts) {
        uint32_t starting = starts ? rule_.start_rounds : 0;
        std::vector<Lane *> granted;
        for (int64_t r = 0; r < rounds;) {
            const uint64_t need = starting ? ~uint64_t(0) : needs[r];
            const bool beat = wants();
            bool ready = true;
            for (size_t i = 0; i < lanes_.size(); i++) ready = ready && !held_up(i, need);
            granted.clear();
            for (int bank = 0; bank < per_beat_ && level_; bank++) {
                Lane *found = nullptr;
                for (size_t i = size_t(bank); i < lanes_.size(); i += size_t(per_beat_)) {
                    if (held_up(i, need)) {
                        found = &lanes_[i];
                        break;
                    }
                    if (!found && lanes_[i].reserve < rule_.reserve) found = &lanes_[i];
                }
                if (!found) continue;
                granted.push_back(found);
                const bool real = found->next < found->words.size();
                put(real ? found->words[found->next++] : 0, real);
            }
            if (ready) {
                for (size_t i = 0; i < lanes_.size(); i++) lanes_[i].reserve -= need >> i & 1;
                if (starting) starting--;
                else r++;
            }
            for (Lane *lane : granted) lane->reserve++;
            take(beat);
        }
    }

  private:
    std::vector<Lane> &lanes_;
    const Rule &rule_;
    const int per_beat_;
    uint16_t *stream_;
    int64_t level_ = 0, given_ = 0;

    bool held_up(size_t lane, uint64_t need) const { return need >> lane & 1 && !lanes_[lane].reserve; }
    bool wants() const { return level_ <= int64_t(rule_.queue_beats - 1) * per_beat_; }
    void put(uint16_t word, bool real = true) {
        stream_[given_++] = word;
        level_--;
        if (real) needed = given_;
    }
    void take(bool beat) {
        if (!beat) return;
        level_ += per_beat_;
        taken++;
    }
};

}  // namespace

extern "C" {

// One stream. `loads` in order: of a table the number and how many words it has, of weights -1 and the rounds, the first
// of them after a table; `beats`: gets the beats of each. `words`, `symbols`: of the tables, one after the other.
// `stream` has room for everything. Returns the words written, whole beats; -1 if a first state cannot be reached.
int64_t tw_encode_stream(const uint8_t *weights, int lane_count, int per_beat, const Rule *rule, const Load *loads,
                         int64_t load_count, const uint16_t *words, const Symbol *symbols, uint16_t *stream,
                         int64_t *beats) {
    std::vector<Lane> lanes(lane_count);
    std::vector<uint64_t> needs;
    const Symbol *table = nullptr;
    for (int64_t i = 0; i < load_count;) {
        if (loads[i].table >= 0) {
            table = symbols + 256 * loads[i++].table;
            continue;
        }
        int64_t rounds = 0;
        for (; i < load_count && loads[i].table < 0; i++) rounds += loads[i].count;
        needs.resize(needs.size() + size_t(rounds));
        if (!encode_lanes(weights, rounds, lanes, table, *rule, &needs[needs.size() - size_t(rounds)])) return -1;
        weights += rounds * lane_count;
    }

    Order order(lanes, *rule, per_beat, stream);
    const uint64_t *need = needs.data();
    for (int64_t i = 0; i < load_count; i++) {
        const int64_t before = order.taken;
        if (loads[i].table >= 0) {
            order.table(words, loads[i].count, int64_t(1) << rule->slot_bits);
            words += loads[i].count;
        } else {
            order.weights(need, loads[i].count, i && loads[i - 1].table >= 0);
            need += loads[i].count;
        }
        beats[i] = order.taken - before;
    }
    // What nobody needs is left out: the last words of the last beats.
    const int64_t whole = (order.needed + per_beat - 1) / per_beat;
    int64_t rest = whole;
    for (int64_t i = 0; i < load_count; i++) {
        beats[i] = std::min(beats[i], rest);
        rest -= beats[i];
    }
    return whole * per_beat;
}
}
