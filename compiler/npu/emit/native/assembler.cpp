// Assembly: a tile program becomes the instructions of an NPU step.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "expand.h"
#include "sequence.h"

using namespace tilewright;

namespace {

tw_word finished(const Placed &placed) {
    tw_word word = placed.word;
    for (int i = 0; i < placed.wait_count; i++) {
        if (i == 0) TW_PUT(word, header_wait0, placed.waits[i]);
        else TW_PUT(word, header_wait1, placed.waits[i]);
    }
    for (int i = 0; i < placed.signal_count; i++) {
        if (i == 0) TW_PUT(word, header_signal0, placed.signals[i]);
        else TW_PUT(word, header_signal1, placed.signals[i]);
    }
    return word;
}

template <class Item>
Item *copied(const std::vector<Item> &items) {
    auto *made = static_cast<Item *>(std::malloc(std::max<size_t>(1, items.size()) * sizeof(Item)));
    if (!made) throw AssemblyError("no memory for a program");
    std::memcpy(made, items.data(), items.size() * sizeof(Item));
    return made;
}

// Calls a function; returns false, with what is wrong in `call->error`, if something cannot be assembled.
template <class Function>
bool guarded(tw_assembly *call, Function function) {
    try {
        function();
        return true;
    } catch (const AssemblyError &error) {
        std::snprintf(call->error, sizeof call->error, "%s", error.what());
        return false;
    }
}

}  // namespace

extern "C" {

// Counts the work of a tile program by engine.
bool tw_count_work(tw_assembly *call) {
    return guarded(call, [&] {
        Expander expander(call->machine, true);
        expander.all({call->tape, call->tape_length});
        for (int engine = 0; engine < ENGINES; engine++) call->work[engine] = expander.work[engine];
    });
}

// Writes the instructions of a tile program, with END as the last.
bool tw_assemble(tw_assembly *call) {
    return guarded(call, [&] {
        Expander expander(call->machine, false);
        expander.all({call->tape, call->tape_length});
        const Sequence made = sequence(call->machine, expander.runs);
        std::vector<uint8_t> image(made.order.size() * TW_INSTRUCTION_BYTES);
        for (size_t i = 0; i < made.order.size(); i++) {
            const tw_word word = finished(made.order[i]);
            std::memcpy(&image[i * TW_INSTRUCTION_BYTES], &word, TW_INSTRUCTION_BYTES);
        }
        std::vector<int64_t> begins;
        for (int64_t run : expander.first) begins.push_back(made.begins[run]);
        call->image = copied(image);
        call->image_bytes = image.size();
        call->begins = copied(begins);
        call->operations = begins.size();
    });
}

// Lists what the runs of a tile program touch, in numbers: for each run how many accesses are reads and writes, and of
// each access its space, first row, length, times and stride.
bool tw_list_accesses(tw_assembly *call) {
    return guarded(call, [&] {
        Expander expander(call->machine, false);
        expander.all({call->tape, call->tape_length});
        std::vector<int64_t> found;
        for (const Run &run : expander.runs) {
            found.push_back(int64_t(run.reads.size()));
            found.push_back(int64_t(run.writes.size()));
            for (const auto *accesses : {&run.reads, &run.writes})
                for (const Access &a : *accesses)
                    found.insert(found.end(), {a.space, a.start, a.length, a.times, a.stride});
        }
        call->begins = copied(found);
        call->operations = found.size();
    });
}

void tw_free_assembly(tw_assembly *call) {
    std::free(call->image);
    std::free(call->begins);
    call->image = nullptr;
    call->begins = nullptr;
}

uint64_t tw_assembly_size() { return sizeof(tw_assembly); }
}
