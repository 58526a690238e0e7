// What AXI4 asks of a master, looked at in every cycle of a Verilated NPU: requests stay as they are until they are
// taken, bursts are of full-width beats that count up within 4096 bytes, WLAST is at the last beat of a burst.
#ifndef TILEWRIGHT_AXI_RULES_H
#define TILEWRIGHT_AXI_RULES_H

#include <array>
#include <cstdint>
#include <cstring>

namespace tilewright {

// A channel on which something is offered: what was offered and not taken must be there in the next cycle too.
template <size_t BYTES> class Held {
  public:
    template <class... Field> bool changes(bool valid, bool ready, const Field &...fields) {
        std::array<uint8_t, BYTES> now{};
        uint8_t *to = now.data();
        ((std::memcpy(to, &fields, sizeof(fields)), to += sizeof(fields)), ...);
        const bool wrong = waits_ && (!valid || now != offered_);
        waits_ = valid && !ready;
        offered_ = now;
        return wrong;
    }
    void forget() { waits_ = false; }

  private:
    std::array<uint8_t, BYTES> offered_{};
    bool waits_ = false;
};

template <class Top> class AxiRules {
  public:
    // Behind a reset nothing is held.
    void reset() { ar_.forget(), aw_.forget(), w_.forget(); }

    // Returns the rule that is broken in this cycle, nullptr for none. `last` = the beat of W that is offered ends its
    // burst.
    const char *broken(const Top &t, bool last) {
        const bool ar = ar_.changes(t.axi_arvalid, t.axi_arready, t.axi_araddr, t.axi_arlen, t.axi_arsize, t.axi_arburst);
        const bool aw = aw_.changes(t.axi_awvalid, t.axi_awready, t.axi_awaddr, t.axi_awlen, t.axi_awsize, t.axi_awburst);
        const bool w = w_.changes(t.axi_wvalid, t.axi_wready, t.axi_wdata, t.axi_wstrb, t.axi_wlast);
        if (ar) return "AR changes before it is taken";
        if (aw) return "AW changes before it is taken";
        if (w) return "W changes before it is taken";
        if (t.axi_arvalid && !legal(t.axi_araddr, t.axi_arlen, t.axi_arsize, t.axi_arburst)) return "AR is no legal burst";
        if (t.axi_awvalid && !legal(t.axi_awaddr, t.axi_awlen, t.axi_awsize, t.axi_awburst)) return "AW is no legal burst";
        if (t.axi_wvalid && t.axi_wready && bool(t.axi_wlast) != last) return "WLAST is not at the end of a burst";
        return nullptr;
    }

  private:
    static constexpr uint64_t BUS = sizeof(Top::axi_rdata), INCREMENTING = 1, BOUNDARY = 4096;

    static bool legal(uint64_t address, uint64_t length, uint64_t size, uint64_t burst) {
        const bool within = address % BOUNDARY + (length + 1) * BUS <= BOUNDARY;
        return within && address % BUS == 0 && uint64_t(1) << size == BUS && burst == INCREMENTING;
    }

    static constexpr size_t ADDRESS = sizeof(Top::axi_araddr) + 3;
    Held<ADDRESS> ar_, aw_;
    Held<sizeof(Top::axi_wdata) + sizeof(Top::axi_wstrb) + sizeof(Top::axi_wlast)> w_;
};

}  // namespace tilewright

#endif
