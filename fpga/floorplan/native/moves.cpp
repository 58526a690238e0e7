// Moves of simulated annealing over the LUTs and flip-flops of a placement: see ../refinement.py.
//
// Whole numbers only, so that the result is the same on every machine.

#include <algorithm>
#include <cstdint>
#include <vector>

enum Kind : int32_t { FIXED, LUT, FF, PAIRED_LUT, PAIRED_FF };
enum : int32_t { FREE = -1, NONE = -2 };  // of a site: nothing there; no site there

constexpr int SITES = 8;        // of a tile; two make a slice
constexpr int FEW = 8;          // pins of a net whose ends are taken without the cell that is to move
constexpr int MANY = 64;        // pins of a net that says nothing of where a cell should be
constexpr uint32_t CHANCES = 4096;

extern "C" {
struct tw_placement {
    int32_t columns, rows, cells, nets;
    // Of each cell: what it is; of flip-flops the control signals and the reset, as numbers; the other of a pair.
    const int32_t *kind, *control, *reset, *mate;
    // Cells of each net, nets of each cell: where they begin, and all of them.
    const int32_t *net_begin, *net_cells, *cell_begin, *cell_nets;
    const int32_t *weight;        // cost of a net for each tile of its box's half perimeter
    const int32_t *price;         // of each tile: cost of a net that ends there, for each cell it ends at
    const uint8_t *open;          // of each site: whether flip-flops may come and go
    int32_t *site;                // of each cell: (column * rows + row) * SITES + number
    int32_t *lut_at, *ff_at;      // of each site: the cell, or FREE, or NONE
    int32_t *box;                 // of each net: first and last column, first and last row
};
}

namespace {

struct Box {
    int32_t left = INT32_MAX, right = -1, low = INT32_MAX, high = -1;

    void add(int32_t x, int32_t y) {
        left = std::min(left, x), right = std::max(right, x), low = std::min(low, y), high = std::max(high, y);
    }
    bool edge(int32_t x, int32_t y) const { return x == left || x == right || y == low || y == high; }
    int64_t length() const { return int64_t(right) - left + high - low; }
};

// xorshift64 (Marsaglia, Journal of Statistical Software 8(14), 2003).
struct Random {
    uint64_t state;
    uint32_t draw() {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return uint32_t(state >> 16);
    }
    int32_t below(int32_t n) { return int32_t(uint64_t(draw()) * uint32_t(n) >> 32); }
};

class Annealer {
  public:
    explicit Annealer(tw_placement &placement)
        : p(placement), boxes(reinterpret_cast<Box *>(placement.box)), seen(placement.nets), next(placement.nets) {
        for (int32_t cell = 0; cell < p.cells; cell++)
            if (p.kind[cell] != FIXED && p.kind[cell] != PAIRED_FF) movable.push_back(cell);
    }

    int64_t measure() {
        int64_t cost = 0;
        for (int32_t net = 0; net < p.nets; net++) {
            boxes[net] = around(net);
            cost += p.weight[net] * boxes[net].length();
        }
        for (int32_t cell = 0; cell < p.cells; cell++) cost += int64_t(nets_of(cell)) * p.price[p.site[cell] / SITES];
        return cost;
    }

    // Returns the change of the cost; `taken` gets how many of the moves that are possible were taken, of 1000.
    int64_t run(int64_t moves, int64_t temperature, int32_t radius, Random &random, const int32_t *chances,
                int32_t *taken) {
        int64_t sum = 0, possible = 0, made = 0;
        for (int64_t n = 0; n < moves && !movable.empty(); n++) {
            const int32_t cell = movable[random.below(int32_t(movable.size()))];
            const int32_t from = p.site[cell];
            int32_t x = column(from), y = row(from);
            if (n % 2) x += random.below(2 * radius + 1) - radius, y += random.below(2 * radius + 1) - radius;
            else if (!wanted(cell, random, x, y)) continue;
            if (x < 0 || y < 0 || x >= p.columns || y >= p.rows) continue;
            const int32_t to = (x * p.rows + y) * SITES + random.below(SITES);
            bool luts = p.kind[cell] != FF, ffs = p.kind[cell] != LUT;
            if (to / SITES == from / SITES || !legal(from, to, luts, ffs)) continue;
            possible++;
            const int64_t change = swap(from, to, luts, ffs);
            if (change > temperature * chances[random.below(CHANCES)] >> 16) {
                undo();
                continue;
            }
            made++, sum += change;
            if (luts) std::swap(p.lut_at[from], p.lut_at[to]);
            if (ffs) std::swap(p.ff_at[from], p.ff_at[to]);
            for (int32_t net : touched) boxes[net] = next[net];
        }
        *taken = int32_t(made * 1000 / std::max<int64_t>(possible, 1));
        return sum;
    }

  private:
    int32_t column(int32_t site) const { return site / SITES / p.rows; }
    int32_t row(int32_t site) const { return site / SITES % p.rows; }
    int32_t pins(int32_t net) const { return p.net_begin[net + 1] - p.net_begin[net]; }

    int32_t nets_of(int32_t cell) const { return p.cell_begin[cell + 1] - p.cell_begin[cell]; }

    Box around(int32_t net, int32_t without = FREE, int32_t and_without = FREE) const {
        Box box;
        for (int32_t n = p.net_begin[net]; n < p.net_begin[net + 1]; n++) {
            const int32_t cell = p.net_cells[n];
            if (cell != without && cell != and_without) box.add(column(p.site[cell]), row(p.site[cell]));
        }
        return box;
    }

    // A tile where the nets of a cell (and its mate) want it: near the median of their ends.
    bool wanted(int32_t cell, Random &random, int32_t &x, int32_t &y) {
        xs.clear(), ys.clear();
        const int32_t mate = p.mate[cell];
        for (int32_t of : {cell, mate}) {
            if (of < 0) continue;
            for (int32_t n = p.cell_begin[of]; n < p.cell_begin[of + 1]; n++) {
                const int32_t net = p.cell_nets[n];
                if (pins(net) > MANY) continue;
                const Box ends = pins(net) > FEW ? boxes[net] : around(net, cell, mate);
                if (ends.right < 0) continue;
                xs.push_back(ends.left), xs.push_back(ends.right), ys.push_back(ends.low), ys.push_back(ends.high);
            }
        }
        if (xs.empty()) return false;
        const size_t half = xs.size() / 2;
        std::sort(xs.begin(), xs.end()), std::sort(ys.begin(), ys.end());
        x = xs[half - 1] - 1 + random.below(xs[half] - xs[half - 1] + 3);
        y = ys[half - 1] - 1 + random.below(ys[half] - ys[half - 1] + 3);
        return true;
    }

    // Whether what is on two sites can change places. What belongs together goes together: then `luts` or `ffs`
    // becomes true.
    bool legal(int32_t a, int32_t b, bool &luts, bool &ffs) {
        for (int32_t site : {a, b}) {
            if (luts && p.lut_at[site] >= 0 && p.kind[p.lut_at[site]] == PAIRED_LUT) ffs = true;
            if (ffs && p.ff_at[site] >= 0 && p.kind[p.ff_at[site]] == PAIRED_FF) luts = true;
        }
        for (int32_t site : {a, b}) {
            if (luts && stays(p.lut_at[site])) return false;
            if (ffs && stays(p.ff_at[site])) return false;
        }
        if (!ffs) return true;
        const int32_t f = p.ff_at[a], g = p.ff_at[b];
        if (f >= 0 && g >= 0 && p.control[f] == p.control[g])
            return (p.open[a] && p.open[b]) || (p.kind[f] == FF && p.kind[g] == FF);
        if ((f >= 0 && !p.open[b]) || (g >= 0 && !p.open[a])) return false;
        std::swap(p.ff_at[a], p.ff_at[b]);
        const bool fits = agree(a) && agree(b) && one_reset(a) && one_reset(b);
        std::swap(p.ff_at[a], p.ff_at[b]);
        return fits;
    }

    bool stays(int32_t cell) const { return cell == NONE || (cell >= 0 && p.kind[cell] == FIXED); }

    // Flip-flops of a slice have the same control signals.
    bool agree(int32_t site) const {
        const int32_t f = p.ff_at[site & ~1], g = p.ff_at[site | 1];
        return f < 0 || g < 0 || p.control[f] == p.control[g];
    }

    // Flip-flops of a tile have the same reset, or none of them has one.
    bool one_reset(int32_t site) const {
        int32_t reset = FREE;
        for (int32_t s = site & ~(SITES - 1); s <= (site | (SITES - 1)); s++) {
            if (p.ff_at[s] < 0) continue;
            if (reset != FREE && p.reset[p.ff_at[s]] != reset) return false;
            reset = p.reset[p.ff_at[s]];
        }
        return true;
    }

    // Moves the cells and finds the new boxes of their nets in `next`. Returns the change of the cost.
    int64_t swap(int32_t a, int32_t b, bool luts, bool ffs) {
        count = 0;
        if (luts) put(p.lut_at[a], a, b), put(p.lut_at[b], b, a);
        if (ffs) put(p.ff_at[a], a, b), put(p.ff_at[b], b, a);
        touched.clear(), now++;
        for (int n = 0; n < count; n++) {
            const int32_t x = column(moved[n].to), y = row(moved[n].to);
            const int32_t old_x = column(moved[n].from), old_y = row(moved[n].from);
            for (int32_t i = p.cell_begin[moved[n].cell]; i < p.cell_begin[moved[n].cell + 1]; i++) {
                const int32_t net = p.cell_nets[i];
                if (seen[net] != now) seen[net] = now, touched.push_back(net), next[net] = boxes[net];
                if (next[net].right < 0) continue;
                if (boxes[net].edge(old_x, old_y)) next[net].right = -1;  // to be found anew
                else next[net].add(x, y);
            }
        }
        int64_t change = 0;
        for (int n = 0; n < count; n++)
            change += int64_t(nets_of(moved[n].cell)) * (p.price[moved[n].to / SITES] - p.price[moved[n].from / SITES]);
        for (int32_t net : touched) {
            if (next[net].right < 0) next[net] = around(net);
            change += p.weight[net] * (next[net].length() - boxes[net].length());
        }
        return change;
    }

    void put(int32_t cell, int32_t from, int32_t to) {
        if (cell < 0) return;
        moved[count++] = {cell, from, to};
        p.site[cell] = to;
    }

    void undo() {
        for (int n = 0; n < count; n++) p.site[moved[n].cell] = moved[n].from;
    }

    struct Move { int32_t cell, from, to; };

    tw_placement &p;
    Box *boxes;
    std::vector<int32_t> movable, touched, xs, ys;
    std::vector<uint64_t> seen;  // of each net: the move that last touched it
    std::vector<Box> next;       // and its box after that
    uint64_t now = 0;
    Move moved[4];
    int count = 0;
};

}  // namespace

extern "C" {

// The cost of a placement; finds the boxes of its nets.
int64_t tw_measure(tw_placement *placement) { return Annealer(*placement).measure(); }

// Tries moves at a temperature, in units of the cost; at most `radius` tiles far, or to where the nets of a cell want
// it. `state` is that of the random numbers, `chances` has -ln((n + 1/2) / CHANCES) * 65536 at n.
int64_t tw_moves(tw_placement *placement, int64_t moves, int64_t temperature, int32_t radius, uint64_t *state,
                 const int32_t *chances, int32_t *taken) {
    Random random{*state};
    const int64_t change = Annealer(*placement).run(moves, temperature, radius, random, chances, taken);
    *state = random.state;
    return change;
}

uint64_t tw_placement_size() { return sizeof(tw_placement); }
}
