// The order in which the runs of a step are written: LOAD and VECTOR go on where they would stand still.
//
// Runs come in an order that is right if each ends before the next starts. An engine works through its own in order; so
// a load that waits for room in ACT holds back the weights behind it, a VECTOR that waits for products holds back what
// the next ones are made of, and where a queue is full, nothing further on is even fetched. A clock guesses when the
// engines get to their runs. Where LOAD or VECTOR would stand still, runs from further on go first, if by then what
// they read has been written and what they overwrite has been used.
#pragma once

#include <limits>
#include <set>

#include "hazards.h"

namespace tilewright {

// How many of an engine's next runs are looked at, and of those that may go first, how many are tried.
constexpr int LOOK = 64, TRY = 8;
// Cycles of standing still that are worth a run.
constexpr int64_t GAP = 16;
// Share of the time that runs ahead have to leave, to be worth it.
constexpr double BETTER = 0.995;
// Part of a run that may be left when its engine would have gone on.
constexpr double LONGER = 0.5;
// Part of the time that its engine stands still, after which a run may start at the latest.
constexpr double later(int engine) { return engine == TW_ENGINE_VECTOR ? 0.5 : 0.0; }
// Engines whose runs may go ahead.
constexpr int MOVABLE[] = {TW_ENGINE_LOAD, TW_ENGINE_VECTOR};

// Guesses when the engines get to the runs that have been written.
class Clock {
  public:
    explicit Clock(const tw_assembler &machine) : machine_(machine) {
        for (auto &starts : starts_) starts.assign(machine.queue_depth, 0);
    }

    int64_t free[ENGINES] = {};  // the cycle from which on an engine has nothing to do
    int64_t delay(int engine) const { return machine_.delay[engine]; }

    // Cycle in which one more instruction can be in the queue of an engine.
    int64_t dispatch(int engine) const {
        const int queue = tw_queue_of(engine, machine_.vector_queue);
        return std::max(fetched_, starts_[queue][oldest_[queue]]);
    }

    // The next run that is written.
    void take(std::vector<Run> &runs, Run &run) {
        const int engine = run.engine, queue = tw_queue_of(engine, machine_.vector_queue);
        fetched_ = dispatch(engine) + run.instructions;
        const int64_t start = std::max({free[engine], fetched_, ready(runs, run)});
        for (int i = 0; i < run.instructions; i++) {
            starts_[queue][oldest_[queue]] = start;
            oldest_[queue] = (oldest_[queue] + 1) % starts_[queue].size();
        }
        free[engine] = start + run.work;
        run.end = start + run.work + machine_.delay[engine];
    }

    // Cycle in which all that a run needs has ended.
    static int64_t ready(const std::vector<Run> &runs, const Run &run) {
        int64_t cycle = 0;
        bool any = false;
        for (int need : run.needs) {
            cycle = any ? std::max(cycle, runs[need].end) : runs[need].end;
            any = true;
        }
        return cycle;
    }

  private:
    const tw_assembler &machine_;
    std::vector<int64_t> starts_[ENGINES];  // of the last instructions of a queue, in a ring
    size_t oldest_[ENGINES] = {};
    int64_t fetched_ = 0;
};

// Finds, for runs that may go ahead, what must be written before them.
class Places {
  public:
    explicit Places(const tw_assembler &machine) : machine_(machine) {
        for (int space = 0; space < SPACES; space++) {
            written_[space].assign(machine.rows[space], NEVER);
            used_[space].assign(machine.rows[space], NEVER);
        }
    }

    void find(std::vector<Run> &runs) {
        for (size_t number = 0; number < runs.size(); number++) {
            Run &run = runs[number];
            if (run.movable) find_one(runs, run);
            for (const Access &access : run.reads) mark(used_[access.space], access, machine_.memory_grain, int(number));
            for (const Access &access : run.writes) {
                mark(written_[access.space], access, machine_.memory_grain, int(number));
                mark(used_[access.space], access, machine_.memory_grain, int(number));
            }
        }
    }

  private:
    void find_one(std::vector<Run> &runs, Run &run) {
        std::vector<int> after, hides;
        for (const Access &access : run.reads) {
            if (in_order(access.space)) {
                after.push_back(highest(written_[access.space], access, machine_.memory_grain));
            } else {
                add_numbers(after, written_[access.space], access);
                add_numbers(hides, used_[access.space], access);
            }
        }
        for (const Access &access : run.writes) add_numbers(after, used_[access.space], access);
        run.after = distinct(after);
        run.hides = distinct(hides);
        run.behind = NEVER;
        for (int n : run.after)
            if (!runs[n].movable) run.behind = std::max(run.behind, n);
    }

    // Spaces that are written in the order of the program.
    bool in_order(int space) const {
        for (int engine : MOVABLE)
            if (machine_.writers[space] >> engine & 1) return false;
        return true;
    }

    void add_numbers(std::vector<int> &found, const std::vector<int32_t> &rows, const Access &access) const {
        over_rows(access, rows.size(), machine_.memory_grain, [&](int64_t first, int64_t end) {
            int before = NEVER;  // neighbours mostly have the same
            for (int64_t row = first; row < end; row++) {
                if (rows[row] == before) continue;
                before = rows[row];
                if (before != NEVER) found.push_back(before);
            }
        });
    }

    static std::vector<int> distinct(std::vector<int> &numbers) {
        std::sort(numbers.begin(), numbers.end());
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
        if (!numbers.empty() && numbers.front() == NEVER) numbers.erase(numbers.begin());
        return numbers;
    }

    const tw_assembler &machine_;
    std::vector<int32_t> written_[SPACES], used_[SPACES];
};

// Writes the runs of a step once.
class Writer {
  public:
    // most: runs that are ahead of their place at most.
    Writer(const tw_assembler &machine, std::vector<Run> &runs, int most)
        : runs_(runs), clock_(machine), sync_(machine), most_(most) {
        for (size_t number = 0; number < runs.size(); number++) {
            runs[number].written = false;
            if (runs[number].movable) waiting_[runs[number].engine].push_back(int(number));
        }
    }

    std::vector<int64_t> begins;  // for each run, how many instructions were written when its turn came
    bool moved = false;           // a run went ahead

    // Writes all runs, and END.
    std::vector<Placed> write_all() {
        int ahead = 0;
        for (size_t number = 0; number < runs_.size(); number++) {
            begins.push_back(int64_t(sync_.order.size()));
            Run &run = runs_[number];
            if (run.written) {
                ahead--;
                continue;
            }
            if (run.movable) waiting_[run.engine].pop_front();
            Needs needs = needs_of(run);
            while (ahead < most_) {
                const std::vector<int> chosen = first_ahead(int(number));
                if (chosen.empty()) break;
                bool same = false;  // its engine may know more by now
                for (int one : chosen) {
                    auto &waiting = waiting_[runs_[one].engine];
                    waiting.erase(std::find(waiting.begin(), waiting.end(), one));
                    write(one, needs_of(runs_[one]));
                    same |= runs_[one].engine == run.engine;
                }
                ahead += int(chosen.size());
                moved = true;
                if (same) needs = needs_of(run);
            }
            write(int(number), needs);
        }
        sync_.configure(instruction(TW_OP_END), TW_ENGINE_FETCH);
        return std::move(sync_.order);
    }

  private:
    Needs needs_of(Run &run) {
        const Needs needs = sync_.needs(run);
        run.needs.clear();
        for (const Need &need : needs) run.needs.push_back(sync_.run_of(need));
        return needs;
    }

    void write(int number, const Needs &needs) {
        Run &run = runs_[number];
        const size_t first = sync_.order.size();
        for (const Setting &setting : run.settings)
            if (registers_.change(setting)) sync_.configure(encode(setting), run.engine);
        sync_.run(run, number, needs);
        run.instructions = int(sync_.order.size() - first);
        run.written = true;
        clock_.take(runs_, run);
    }

    // The runs that are issued before run `number`: one, behind loads that it reads; none if that gains nothing. All
    // runs before `number` have been written.
    std::vector<int> first_ahead(int number) {
        const Run &run = runs_[number];
        const int64_t dispatched = clock_.dispatch(run.engine);
        for (int engine : MOVABLE) {
            const auto &waiting = waiting_[engine];
            int64_t until = dispatched;
            if (run.engine == engine) until = std::max(until, Clock::ready(runs_, run));
            const int64_t free = clock_.free[engine];
            if (waiting.empty() || until - free < GAP) continue;
            const double latest = double(free) + later(engine) * double(until - free);
            int tried = 0, looked = 0;
            for (auto at = waiting.begin(); at != waiting.end() && looked < LOOK; ++at, ++looked) {
                const int chosen = *at;
                if (runs_[chosen].behind >= number) continue;
                std::optional<std::vector<int>> loads = unwritten(chosen, number, latest);
                if (!loads) continue;
                const int64_t start = start_of(chosen, *loads);
                tried++;
                if (double(start) <= latest &&
                    double(start) + (1 - LONGER) * double(runs_[chosen].work) <= double(until)) {
                    loads->push_back(chosen);
                    return *loads;
                }
                if (tried == TRY) break;
            }
        }
        return {};
    }

    // The loads that have to be written before a run, where all before `number` are; none at all if others have to, or
    // what it comes after ends later than in cycle `latest`.
    std::optional<std::vector<int>> unwritten(int chosen, int number, double latest) const {
        const std::vector<int> &after = runs_[chosen].after;
        std::vector<int> missing;
        if (!after.empty() && after.back() < number) {
            if (double(runs_[after.back()].end) <= latest) return missing;
            return std::nullopt;
        }
        std::set<int> seen(after.begin(), after.end());
        std::vector<int> todo;
        for (int n : after)
            if (n >= number) todo.push_back(n);
        while (!todo.empty()) {
            const int n = todo.back();
            todo.pop_back();
            const Run &before = runs_[n];
            if (before.written) {
                if (double(before.end) > latest) return std::nullopt;
            } else {
                if (n == number || before.engine != TW_ENGINE_LOAD || !before.movable) return std::nullopt;
                const auto further = unwritten(n, number, std::numeric_limits<double>::infinity());
                if (!further || !further->empty()) return std::nullopt;
                missing.push_back(n);
            }
            for (int hidden : before.hides)
                if (hidden >= number && seen.insert(hidden).second) todo.push_back(hidden);
        }
        std::sort(missing.begin(), missing.end());
        return missing;
    }

    // Guesses when a run would start, behind some loads.
    int64_t start_of(int chosen, const std::vector<int> &loads) {
        int64_t loaded = clock_.free[TW_ENGINE_LOAD];
        for (int n : loads) {
            needs_of(runs_[n]);
            loaded = std::max(loaded, Clock::ready(runs_, runs_[n])) + runs_[n].work;
        }
        Run &run = runs_[chosen];
        needs_of(run);
        const int64_t start = std::max(clock_.free[run.engine], Clock::ready(runs_, run));
        return loads.empty() ? start : std::max(start, loaded + clock_.delay(TW_ENGINE_LOAD));
    }

    std::vector<Run> &runs_;
    Clock clock_;
    Synchroniser sync_;
    Registers registers_;
    int most_;
    std::deque<int> waiting_[ENGINES];
};

// The finished instructions of a step, and for each run where those begin that were written when its turn came.
struct Sequence {
    std::vector<Placed> order;
    std::vector<int64_t> begins;
};

// Writes the runs of a step. Where all would end hardly earlier, no run goes ahead: on a memory slower than the clock
// thinks it is in the way of others.
inline Sequence sequence(const tw_assembler &machine, std::vector<Run> &runs) {
    Places(machine).find(runs);
    Writer writer(machine, runs, int(machine.ahead));
    Sequence made{writer.write_all(), {}};
    made.begins = std::move(writer.begins);
    if (!writer.moved) return made;
    auto last = [&] {
        int64_t cycle = std::numeric_limits<int64_t>::min();
        for (const Run &run : runs) cycle = std::max(cycle, run.end);
        return cycle;
    };
    const int64_t cycles = last();
    Clock clock(machine);
    for (Run &run : runs) clock.take(runs, run);
    if (double(cycles) >= BETTER * double(last())) {
        Writer plain(machine, runs, 0);
        made.order = plain.write_all();
        made.begins = std::move(plain.begins);
    }
    return made;
}

}  // namespace tilewright
