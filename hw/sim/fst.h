// A waveform file in GTKWave's format FST, made of the VCD that Verilator writes, with the text of the instruction that
// each engine works on: what GTKWave and Surfer show as strings.
//
// The format is that of fstapi.c: a header; blocks of changes, each with a time table and a chain of changes for every
// signal; the geometry (bits of every signal); the hierarchy (names). libz packs them where it is found.
#ifndef TILEWRIGHT_FST_H
#define TILEWRIGHT_FST_H

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "verilated_vcd_c.h"

namespace tilewright {

// The names of the strings, in the order of their numbers.
using TextNames = std::vector<std::string>;

class FstFile final : public VerilatedVcdFile {
  public:
    // `block_bytes`: of changes that are kept in memory, about.
    explicit FstFile(TextNames names, size_t block_bytes = size_t(64) << 20)
        : names_(std::move(names)), shown_(names_.size()), block_bytes_(block_bytes) {
        if (void *library = dlopen("libz.so.1", RTLD_LAZY | RTLD_LOCAL))
            compress_ = reinterpret_cast<Compress>(dlsym(library, "compress2"));
    }

    ~FstFile() override { close(); }

    bool open(const std::string &name) override {
        name_ = name;
        file_ = std::fopen(name.c_str(), "wb");
        if (file_) write_header();
        return file_ != nullptr;
    }

    // Takes VCD in pieces of any size.
    ssize_t write(const char *data, ssize_t bytes) override {
        const char *const end = data + bytes;
        for (const char *from = data; from < end;) {
            const char *line_end = static_cast<const char *>(std::memchr(from, '\n', end - from));
            if (!line_end) {
                line_.append(from, end);
                break;
            }
            if (line_.empty()) {
                take(from, line_end);
            } else {
                line_.append(from, line_end);
                take(line_.data(), line_.data() + line_.size());
                line_.clear();
            }
            from = line_end + 1;
        }
        if (file_ && !std::ferror(file_)) return bytes;
        errno = EIO;
        return -1;
    }

    // What string `number` shows from the last time on. All VCD up to it must have been written.
    void text(size_t number, const std::string &value) {
        if (value == shown_[number]) return;
        shown_[number] = value;
        std::string &chain = begin_change(signals_[texts_ + number], 1);
        varint(chain, value.size());
        chain += value;
        used_ += chain.size();
    }

    void close() override {
        if (!file_) return;
        flush();
        write_geometry();
        write_hierarchy();
        std::rewind(file_);
        write_header();
        const bool bad = std::ferror(file_);
        if (std::fclose(file_) || bad) std::fprintf(stderr, "cannot write waveform %s\n", name_.c_str());
        file_ = nullptr;
    }

  private:
    using Compress = int (*)(unsigned char *, unsigned long *, const unsigned char *, unsigned long, int);
    enum { HEADER = 0, GEOMETRY = 3, HIERARCHY = 4, CHANGES = 5 };            // kinds of blocks
    enum { MODULE = 0, WIRE = 16, STRING = 21, SCOPE = 254, UPSCOPE = 255 };  // entries of the hierarchy
    static constexpr uint32_t VARIABLE = 0xFFFFFFFF;  // length of a string in the geometry
    static constexpr double ENDIAN = 2.7182818284590452354;  // tells readers the order of bytes

    struct Signal {
        uint32_t bits;      // 0: a string
        uint32_t last = 0;  // index of the time of its last change in this block
        std::string value;  // its bits now: 0, 1, or x before the first change
        std::string chain;  // its changes in this block
    };

    static void big_endian(std::string &to, uint64_t value) {
        for (int shift = 56; shift >= 0; shift -= 8) to += char(value >> shift);
    }

    static void little_endian(std::string &to, uint64_t value, int bytes) {
        for (int n = 0; n < bytes; n++) to += char(value >> 8 * n);
    }

    static void varint(std::string &to, uint64_t value) {
        for (; value >= 128; value >>= 7) to += char(value | 128);
        to += char(value);
    }

    // The stream of libz, empty if it is no shorter or there is no libz.
    std::string packed(const std::string &data) const {
        std::string to(data.size(), 0);
        unsigned long size = to.size();
        const auto *from = reinterpret_cast<const unsigned char *>(data.data());
        if (!compress_ || data.size() < 32) return {};
        if (compress_(reinterpret_cast<unsigned char *>(&to[0]), &size, from, data.size(), 4)) return {};
        to.resize(size < data.size() ? size : 0);
        return to;
    }

    // A section whose two lengths say whether it is packed.
    std::string section(const std::string &data) const {
        std::string to = packed(data);
        return to.empty() ? data : to;
    }

    // The same as a file of gzip.
    std::string gzip(const std::string &data) const {
        std::string to("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10), stream = packed(data);
        if (!stream.empty()) to.append(stream, 2, stream.size() - 6);
        for (size_t at = 0; stream.empty() && at < data.size(); at += 65535) {
            const std::string part = data.substr(at, 65535);
            to += char(at + part.size() == data.size());
            little_endian(to, part.size(), 2);
            little_endian(to, ~part.size(), 2);
            to += part;
        }
        uint32_t sum = ~0u;
        for (const char byte : data) {
            sum ^= uint8_t(byte);
            for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
        }
        little_endian(to, ~sum, 4);
        little_endian(to, data.size(), 4);
        return to;
    }

    void put_block(int kind, const std::string &data) {
        std::string head(1, char(kind));
        big_endian(head, data.size() + 8);
        std::fwrite(head.data(), 1, head.size(), file_);
        std::fwrite(data.data(), 1, data.size(), file_);
    }

    // A line of VCD.
    void take(const char *from, const char *end) {
        while (from < end && *from == ' ') from++;
        if (from == end) return;
        if (!defined_) define(std::string(from, end));
        else if (*from == '#') time(std::strtoull(from + 1, nullptr, 10));
        else if (*from == 'b') {
            const auto *space = static_cast<const char *>(std::memchr(from, ' ', end - from));
            change(from + 1, space, code(space + 1, end));
        } else change(from, from + 1, code(from + 1, end));
    }

    // The number that Verilator writes as letters, lowest first.
    static size_t code(const char *from, const char *end) {
        size_t value = size_t(*--end - '!');
        while (end > from) value = (value + 1) * 94 + size_t(*--end - '!');
        return value;
    }

    void define(const std::string &line) {
        std::istringstream words(line);
        std::string what, kind, name, range;
        words >> what >> kind;
        if (what == "$enddefinitions") {
            scope("instructions");
            texts_ = signals_.size();
            for (const std::string &text : names_) variable(STRING, 0, text, 0);
            end_scope();
            defined_ = true;
        } else if (what == "$timescale") {
            int count = 0;
            char unit = 0;
            std::sscanf(kind.c_str(), "%d%c", &count, &unit);
            const char *units = "smunpf";
            timescale_ = int(std::lround(std::log10(count))) - 3 * int(std::strchr(units, unit) - units);
        } else if (what == "$scope") {
            words >> name;
            scope(name);
        } else if (what == "$upscope") {
            end_scope();
        } else if (what == "$var") {
            uint32_t bits = 0;
            std::string letters;
            words >> bits >> letters >> name >> range;
            if (range != "$end") name += " " + range;
            const size_t number = code(letters.data(), letters.data() + letters.size());
            if (handles_.size() <= number) handles_.resize(2 * number + 1);
            const uint32_t known = handles_[number];
            variable(WIRE, bits, name, known);
            if (!known) handles_[number] = uint32_t(signals_.size());
        }
    }

    void scope(const std::string &name) {
        hierarchy_ += char(SCOPE);
        hierarchy_ += char(MODULE);
        hierarchy_ += name + std::string(2, 0);  // and no name of a component
        scopes_++;
    }

    void end_scope() { hierarchy_ += char(UPSCOPE); }

    // `alias`: the handle of a signal that has another name already, else 0.
    void variable(int kind, uint32_t bits, const std::string &name, uint32_t alias) {
        hierarchy_ += char(kind);
        hierarchy_ += char(0);  // no direction
        hierarchy_ += name + char(0);
        varint(hierarchy_, bits);
        varint(hierarchy_, alias);
        variables_++;
        if (!alias) signals_.push_back({bits, 0, std::string(bits, 'x'), {}});
    }

    void time(uint64_t now) {
        if (!times_.empty() && times_.back() == now) return;
        if (used_ > block_bytes_) flush();
        if (times_.empty())
            for (Signal &signal : signals_) frame_ += signal.value;
        if (blocks_ == 0 && times_.empty()) first_ = now;
        times_.push_back(now);
    }

    // Begins a change of a signal at the last time: how many times have passed, above `low` bits of `value`. The caller
    // adds the bytes of the chain to `used_`.
    std::string &begin_change(Signal &signal, int low, uint64_t value = 0) {
        const auto now = uint32_t(times_.size() - 1);
        used_ -= signal.chain.size();
        varint(signal.chain, uint64_t(now - signal.last) << low | value);
        signal.last = now;
        return signal.chain;
    }

    void change(const char *from, const char *end, size_t number) {
        Signal &signal = signals_[handles_[number] - 1];
        if (signal.bits == 1) {
            used_ += begin_change(signal, 2, *from == '1' ? 2 : 0).size();
            signal.value[0] = *from;
            return;
        }
        std::string &chain = begin_change(signal, 1);
        signal.value.assign(signal.bits - size_t(end - from), '0').append(from, end);
        for (size_t at = 0; at < signal.bits; at += 8) {
            uint8_t byte = 0;
            for (size_t bit = 0; bit < 8; bit++)
                byte = uint8_t(byte << 1 | (at + bit < signal.bits && signal.value[at + bit] == '1'));
            chain += char(byte);
        }
        used_ += chain.size();
    }

    // Writes the block of changes.
    void flush() {
        if (times_.empty()) return;
        std::string chains(1, 'Z'), index, data, frame = section(frame_), times;
        uint64_t memory = 0, last = 0, none = 0;
        for (Signal &signal : signals_) {
            if (signal.chain.empty()) {
                none++;
                continue;
            }
            if (none) varint(index, none << 1);
            none = 0;
            varint(index, (chains.size() - last) << 1 | 1);
            last = chains.size();
            const std::string stream = packed(signal.chain);
            varint(chains, stream.empty() ? 0 : signal.chain.size());
            chains += stream.empty() ? signal.chain : stream;
            memory += signal.chain.size();
            signal.chain.clear();
            signal.last = 0;
        }
        if (none) varint(index, none << 1);
        uint64_t before = 0;
        for (const uint64_t now : times_) {
            varint(times, now - before);
            before = now;
        }
        big_endian(data, times_.front());
        big_endian(data, times_.back());
        big_endian(data, memory);
        for (const uint64_t length : {frame_.size(), frame.size(), signals_.size()}) varint(data, length);
        data += frame;
        varint(data, signals_.size());
        data += chains + index;
        big_endian(data, index.size());
        const std::string packed_times = section(times);
        data += packed_times;
        for (const uint64_t length : {times.size(), packed_times.size(), times_.size()}) big_endian(data, length);
        put_block(CHANGES, data);
        end_ = times_.back();
        times_.clear();
        frame_.clear();
        used_ = 0;
        blocks_++;
    }

    void write_header() {
        std::string data;
        big_endian(data, first_);
        big_endian(data, end_);
        data.append(reinterpret_cast<const char *>(&ENDIAN), sizeof(ENDIAN));
        for (const uint64_t number : {uint64_t(block_bytes_), scopes_, variables_, uint64_t(signals_.size()), blocks_})
            big_endian(data, number);
        data += char(timescale_);
        std::string writer = "Tilewright";
        writer.resize(128 + 119);  // and no date, so that equal runs make equal files
        data += writer;
        data += char(0);  // Verilog
        big_endian(data, 0);
        put_block(HEADER, data);
    }

    void write_geometry() {
        std::string lengths, data;
        for (const Signal &signal : signals_) varint(lengths, signal.bits ? signal.bits : VARIABLE);
        big_endian(data, lengths.size());
        big_endian(data, signals_.size());
        put_block(GEOMETRY, data + section(lengths));
    }

    void write_hierarchy() {
        std::string data;
        big_endian(data, hierarchy_.size());
        put_block(HIERARCHY, data + gzip(hierarchy_));
    }

    TextNames names_;
    std::vector<std::string> shown_;
    Compress compress_ = nullptr;
    std::string name_, line_, hierarchy_, frame_;  // frame_: all bits at the beginning of the block
    FILE *file_ = nullptr;
    bool defined_ = false;
    int timescale_ = -12;
    size_t block_bytes_, texts_ = 0, used_ = 0;  // texts_: index of the first string; used_: bytes of all chains
    uint64_t first_ = 0, end_ = 0, scopes_ = 0, variables_ = 0, blocks_ = 0;
    std::vector<uint32_t> handles_;  // by Verilator's number; 0: none
    std::vector<Signal> signals_;    // by handle - 1
    std::vector<uint64_t> times_;    // of this block
};

}  // namespace tilewright
#endif
