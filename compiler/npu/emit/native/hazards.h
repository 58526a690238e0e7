// Hazards: semaphores that keep instructions of different engines apart where they touch the same rows.
//
// Runs come in a sequential order, which is right if each ends before the next starts, with the rows each one touches.
// `Synchroniser` finds which earlier instruction of which engine every run must wait for, drops what another wait
// implies, and expresses the rest with one counting semaphore per ordered pair of engines: the n-th wait of a pair
// takes the n-th signal. Every wait is for an earlier instruction; so no queue, however short, can deadlock, nor can
// engines that share a queue.
//
// No semaphore can count beyond its limit, however long each instruction takes: a signal is given by an instruction by
// whose end so many earlier ones of the pair have surely been taken that there is room for it. Where no instruction of
// the giver knows enough, a SYNC waits for the taker first. The taker can always signal that: between two engines the
// semaphores of both directions are never full.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "runs.h"

namespace tilewright {

// By engine, the index of the last of its instructions that has surely ended (or started); NEVER for none.
using Indices = std::array<int, ENGINES>;
constexpr Indices NONE{NEVER, NEVER, NEVER, NEVER, NEVER};

inline Indices both(Indices a, const Indices &b) {
    for (int i = 0; i < ENGINES; i++) a[i] = std::max(a[i], b[i]);
    return a;
}

// Instructions that have surely started, in a program that grows instruction by instruction, however long each takes.
//
// An instruction takes its semaphores before it starts. So signals that have surely been taken are those of
// instructions that have surely started: of any engine, because a signal was waited for that came after; and because
// FETCH dispatches in order, so that of the instructions before one that has been dispatched no more are left than
// their queues hold.
class Starts {
  public:
    explicit Starts(const tw_assembler &machine) : machine_(machine) { newest_.fill(NONE); }

    // Appends an instruction that only sets registers.
    void configure(int engine) {
        const int queue = tw_queue_of(engine, machine_.vector_queue);
        make_room(queue);
        held_[queue].push_back(newest_[queue]);
    }
    // Appends the engine's instruction `index`, and gives what has surely started when it starts.
    //   known: the same of those it waits for.
    Indices run(int engine, int index, const std::vector<Indices> &known) {
        const int queue = tw_queue_of(engine, machine_.vector_queue);
        make_room(queue);
        Indices started = newest(engine);
        for (const Indices &other : known) started = both(started, other);
        started[engine] = index;
        newest_[queue] = started;
        held_[queue].push_back(started);
        return started;
    }
    // What has surely started when an instruction starts that is appended now and waits for nothing.
    Indices newest(int engine) const { return both(newest_[tw_queue_of(engine, machine_.vector_queue)], dispatched_); }

  private:
    // One more instruction is dispatched to a queue: the oldest that it may still hold has gone.
    void make_room(int queue) {
        auto &held = held_[queue];
        if (held.size() < machine_.queue_depth) return;
        dispatched_ = both(dispatched_, held.front());
        held.pop_front();
    }

    const tw_assembler &machine_;
    Indices dispatched_ = NONE;            // when the next instruction is dispatched
    std::array<Indices, ENGINES> newest_;  // when the last run of a queue has started
    std::array<std::deque<Indices>, ENGINES> held_;  // the same for each instruction that a queue may still hold
};

// The engine and index of an instruction that must have ended.
struct Need {
    int engine, index;
};
using Needs = std::vector<Need>;

// An instruction in the order of the program.
struct Placed {
    tw_word word;
    int engine;
    int run;          // that it was made of, NEVER for a SYNC and what sets registers
    Indices known;    // that have surely ended when it starts
    Indices started;  // that have surely started
    std::array<int, 2> waits{}, signals{};  // numbers of semaphores, 0 for none
    int wait_count = 0, signal_count = 0;
};

// The semaphore with which one engine signals another.
struct Channel {
    int number = 0;
    std::vector<int> takers;  // indices of the instructions that wait for it, one for each signal
    // Signals that have been taken once the taking engine's instruction `started` has.
    size_t taken(int started) const {
        return std::upper_bound(takers.begin(), takers.end(), started) - takers.begin();
    }
};

// Per engine and row of a space, a number of the last access; and the highest of all rows.
struct LastAccess {
    std::vector<int32_t> rows[ENGINES];
    int last[ENGINES] = {NEVER, NEVER, NEVER, NEVER, NEVER};
};

// Calls a function with every range [first, end) of entries that an access touches in a space of `size` entries.
template <class Function>
inline void over_rows(const Access &access, int64_t size, int64_t grain, Function function) {
    if (access.space == MEMORY) {
        const int64_t first = access.start / grain, end = (access.start + access.length + grain - 1) / grain;
        function(std::min(first, size), std::min(end, size));
        return;
    }
    for (int64_t turn = 0; turn < access.times; turn++) {
        const int64_t first = access.start + turn * access.stride, end = first + access.length;
        if (first < 0 || end > size)
            throw AssemblyError("rows " + std::to_string(first) + ".." + std::to_string(end) + " of " +
                                std::to_string(size));
        function(first, end);
    }
}

inline int highest(const std::vector<int32_t> &rows, const Access &access, int64_t grain) {
    int most = NEVER;
    over_rows(access, rows.size(), grain, [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; row++) most = std::max(most, rows[row]);
    });
    return most;
}

inline void mark(std::vector<int32_t> &rows, const Access &access, int64_t grain, int number) {
    over_rows(access, rows.size(), grain,
              [&](int64_t first, int64_t end) { std::fill(rows.begin() + first, rows.begin() + end, number); });
}

// Gives the runs of a step their semaphores.
class Synchroniser {
  public:
    explicit Synchroniser(const tw_assembler &machine) : machine_(machine), starts_(machine) {
        for (int space = 0; space < SPACES; space++)
            for (int engine = 0; engine < ENGINES; engine++) {
                if (machine.writers[space] >> engine & 1) write_[space].rows[engine].assign(machine.rows[space], NEVER);
                if (machine.readers[space] >> engine & 1) read_[space].rows[engine].assign(machine.rows[space], NEVER);
            }
    }

    std::vector<Placed> order;  // all instructions so far

    // Appends an instruction that only sets registers, or END.
    void configure(tw_word word, int engine) {
        if (engine != TW_ENGINE_FETCH) starts_.configure(engine);
        Placed placed{word, engine, NEVER, NONE, NONE};
        order.push_back(placed);
    }

    // Appends a run that `needs` are the needs of, with a SYNC before it where it would need a third wait. Returns its
    // index.
    int run(const Run &run, int number, const Needs &needs) {
        const int index = place(run.word, run.engine, number, needs);
        for (const Access &access : run.reads) note(read_[access.space], access, run.engine, index);
        for (const Access &access : run.writes) note(write_[access.space], access, run.engine, index);
        return index;
    }

    // Per engine, the last of its instructions that must have ended before these accesses and may not have.
    //
    // An engine keeps its own instructions in order, with one exception: a VECTOR may read before an earlier one has
    // written.
    Needs needs(const Run &run) const {
        const auto &queue = engines_[run.engine];
        const Indices known = queue.empty() ? NONE : order[queue.back()].known;
        Needs needs;
        earlier(run, [&](int other, const LastAccess &space, const Access &access) {
            auto found = std::find_if(needs.begin(), needs.end(), [&](const Need &n) { return n.engine == other; });
            // Most are known to have ended, whichever rows they touched.
            const int enough = found != needs.end() ? found->index : known[other];
            if (space.last[other] <= enough || access.length <= 0) return;
            const int index = highest(space.rows[other], access, machine_.memory_grain);
            if (index <= enough) return;
            if (found != needs.end()) found->index = index;
            else needs.push_back({other, index});
        });
        if (needs.size() > 1 && alike(needs)) {
            // Which of them comes first then decides: the one that touched the first of the rows.
            Needs sorted;
            earlier(run, [&](int other, const LastAccess &space, const Access &access) {
                if (highest(space.rows[other], access, machine_.memory_grain) <= NEVER) return;
                for (const Need &need : needs) {
                    const bool there = std::any_of(sorted.begin(), sorted.end(),
                                                   [&](const Need &n) { return n.engine == other; });
                    if (need.engine == other && !there) sorted.push_back(need);
                }
            });
            needs = sorted;
        }
        return needs;
    }

    // The run that instruction `index` of an engine was made of.
    int run_of(const Need &need) const { return at(need).run; }

  private:
    const Placed &at(const Need &need) const { return order[engines_[need.engine][need.index]]; }
    Placed &at(const Need &need) { return order[engines_[need.engine][need.index]]; }

    void note(LastAccess &space, const Access &access, int engine, int index) {
        mark(space.rows[engine], access, machine_.memory_grain, index);
        space.last[engine] = index;
    }

    // Calls a function with what must have ended before the accesses of a run: an engine, its accesses, the access
    // that counts.
    template <class Function>
    void earlier(const Run &run, Function function) const {
        for (const Access &access : run.reads)
            for (int other = 0; other < ENGINES; other++)
                if (machine_.writers[access.space] >> other & 1 &&
                    (other != run.engine || run.engine == TW_ENGINE_VECTOR))
                    function(other, write_[access.space], access);
        for (const Access &access : run.writes)
            for (bool written : {true, false})
                for (int other = 0; other < ENGINES; other++)
                    if ((written ? machine_.writers : machine_.readers)[access.space] >> other & 1 &&
                        other != run.engine)
                        function(other, (written ? write_ : read_)[access.space], access);
    }

    // How many instructions have ended once this one has.
    int64_t knowledge(const Need &need) const {
        int64_t sum = need.index;
        const Indices &known = at(need).known;
        for (int engine = 1; engine < ENGINES; engine++) sum += known[engine];
        return sum;
    }

    bool alike(const Needs &needs) const {
        for (size_t i = 0; i < needs.size(); i++)
            for (size_t j = 0; j < i; j++)
                if (knowledge(needs[i]) == knowledge(needs[j])) return true;
        return false;
    }

    // Adds to `known` what is known once an instruction has ended.
    void merge(Indices &known, const Need &need) const {
        known = both(known, at(need).known);
        known[need.engine] = std::max(known[need.engine], need.index);
    }

    // Appends an instruction that waits for what it needs and does not know to have ended.
    int place(tw_word word, int engine, int run, Needs needs) {
        auto known_now = [&] { return engines_[engine].empty() ? NONE : order[engines_[engine].back()].known; };
        Indices known = known_now();
        Needs waits;
        // Latest requirements first: what they know often covers the others.
        std::stable_sort(needs.begin(), needs.end(),
                         [&](const Need &a, const Need &b) { return knowledge(a) > knowledge(b); });
        for (const Need &need : needs) {
            if (known[need.engine] >= need.index) continue;
            const Need giver{need.engine, signaller(need.engine, engine, need.index, waits)};
            waits.push_back(giver);
            merge(known, giver);
        }
        if (waits.size() > 2) {
            // A SYNC of the same engine takes the waits that do not fit.
            place_exact(sync(engine), engine, NEVER, {waits.begin() + 2, waits.end()});
            known = known_now();
            Needs left;
            for (size_t i = 0; i < 2; i++)
                if (known[waits[i].engine] < waits[i].index) left.push_back(waits[i]);
            waits = left;
        }
        return place_exact(word, engine, run, waits);
    }

    // The first instruction of `other` from `last` on that can still give `engine` a signal (a new SYNC if none).
    //   chosen: those that are to give one besides.
    int signaller(int other, int engine, int last, const Needs &chosen) {
        const auto &queue = engines_[other];
        for (size_t index = last; index < queue.size(); index++) {
            const Placed &placed = order[queue[index]];
            if (placed.signal_count < 2 && has_room(other, engine, placed.started)) return int(index);
        }
        // Behind a new SYNC `engine` knows all that `other` has taken: it has room again in its own direction.
        Needs waits;
        if (left(other, engine, starts_.newest(other)) == machine_.limit)
            waits.push_back({engine, taker(other, engine, chosen)});
        return place_exact(sync(other), other, NEVER, waits);
    }

    // True if the semaphore has room for a signal that is given when so much has started, and one of the two
    // directions between the engines will have room for another.
    bool has_room(int source, int target, const Indices &started) const {
        const int64_t now = left(source, target, started);
        if (now < machine_.limit - 1) return true;
        return now < machine_.limit && left(target, source, starts_.newest(target)) < machine_.limit;
    }

    // Signals so far that may not have been taken when so much has started; given are as many as are waited for.
    int64_t left(int source, int target, const Indices &started) const {
        const Channel &channel = channels_[source][target];
        return int64_t(channel.takers.size()) - int64_t(channel.taken(started[target]));
    }

    // An instruction of `target` by whose start half of the signals of `source` that may be left have been taken, and
    // which can give `source` a signal.
    int taker(int source, int target, const Needs &chosen) {
        const Channel &channel = channels_[source][target];
        const size_t taken = channel.taken(starts_.newest(source)[target]);
        const auto &queue = engines_[target];
        for (size_t index = channel.takers[(taken + channel.takers.size()) / 2]; index < queue.size(); index++) {
            const Placed &placed = order[queue[index]];
            const bool used = std::any_of(chosen.begin(), chosen.end(), [&](const Need &need) {
                return need.engine == target && need.index == int(index);
            });
            if (placed.signal_count < 2 && !used && has_room(target, source, placed.started)) return int(index);
        }
        return place_exact(sync(target), target, NEVER, {});
    }

    // Appends an instruction with waits for just these instructions.
    int place_exact(tw_word word, int engine, int run, const Needs &waits) {
        auto &queue = engines_[engine];
        Placed placed{word, engine, run, queue.empty() ? NONE : order[queue.back()].known, NONE};
        const int index = int(queue.size());
        std::vector<Indices> started;
        for (const Need &wait : waits) started.push_back(at(wait).started);
        for (const Need &wait : waits) {
            Channel &used = channel(wait.engine, engine);
            Placed &giver = at(wait);
            giver.signals[giver.signal_count++] = used.number;
            placed.waits[placed.wait_count++] = used.number;
            used.takers.push_back(index);
            merge(placed.known, wait);
        }
        placed.started = starts_.run(engine, index, started);
        queue.push_back(int(order.size()));
        order.push_back(placed);
        return index;
    }

    // The semaphore that `source` signals and `target` waits for.
    Channel &channel(int source, int target) {
        Channel &found = channels_[source][target];
        if (!found.number) {
            found.number = ++count_;
            if (count_ > int(machine_.semaphores))
                throw AssemblyError("the schedule needs " + std::to_string(count_) + " semaphores, the machine has " +
                                    std::to_string(machine_.semaphores));
        }
        return found;
    }

    static tw_word sync(int engine) {
        constexpr uint32_t opcodes[ENGINES] = {0, TW_OP_LOAD_SYNC, TW_OP_GEMM_SYNC, TW_OP_VECTOR_SYNC,
                                               TW_OP_STORE_SYNC};
        return instruction(opcodes[engine]);
    }

    const tw_assembler &machine_;
    Starts starts_;
    LastAccess write_[SPACES], read_[SPACES];
    std::vector<int> engines_[ENGINES];  // by index of an engine's instructions, their places in `order`
    Channel channels_[ENGINES][ENGINES];
    int count_ = 0;  // of semaphores in use
};

}  // namespace tilewright
