"""AXI3, the bus of Zynq-7000's processing system: its ports, and the adaptors to those of the NPU."""

from __future__ import annotations

from amaranth.hdl import C, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Axi4, Axi4Lite
from tilewright.hw.parts.queue import Queue
from tilewright.isa.config import NpuConfig

#: AXI3: beats of the longest burst.
MAX_BEATS = 16
OKAY, SLVERR, DECERR = 0, 2, 3
FIXED, INCR = 0, 1
WORD_SIZE = 2  # AxSIZE of 32 bits

#: Bits of the IDs of M_AXI_GP and S_AXI_HP.
GP_ID_BITS = 12
HP_ID_BITS = 6
HP_DATA_BITS = 64
ADDRESS_BITS = 32


def flipped(members: dict[str, object]) -> dict[str, object]:
    """Flips ports to the other side's direction."""
    return {name: member.flip() for name, member in members.items()}  # type: ignore[attr-defined]


def axi3_master(prefix: str, data_bits: int, id_bits: int) -> dict[str, object]:
    """AXI3 master: AxLEN has 4 bits, write beats carry an ID."""
    names: dict[str, object] = {}
    for channel in ("ar", "aw"):
        names |= {
            f"{channel}valid": Out(1),
            f"{channel}ready": In(1),
            f"{channel}id": Out(id_bits),
            f"{channel}addr": Out(ADDRESS_BITS),
            f"{channel}len": Out(4),
            f"{channel}size": Out(2),
            f"{channel}burst": Out(2),
            f"{channel}cache": Out(4),
            f"{channel}prot": Out(3),
        }
    names |= {
        "rvalid": In(1),
        "rready": Out(1),
        "rid": In(id_bits),
        "rdata": In(data_bits),
        "rresp": In(2),
        "rlast": In(1),
        "wvalid": Out(1),
        "wready": In(1),
        "wid": Out(id_bits),
        "wdata": Out(data_bits),
        "wstrb": Out(data_bits // 8),
        "wlast": Out(1),
        "bvalid": In(1),
        "bready": Out(1),
        "bid": In(id_bits),
        "bresp": In(2),
    }
    return {prefix + name: member for name, member in names.items()}


class RegisterBridge(wiring.Component):
    """Bridges a GP port of the processing system to AXI4-Lite: every beat of a burst is one access to a register.

    Reads and writes are independent, one burst of each at a time, so responses keep the order of requests whatever
    their IDs. Accesses that registers cannot serve are answered with an error and change nothing:

    - DECERR for every beat of a burst that begins outside `base .. base + size`;
    - SLVERR for wrapping bursts, write bursts of other than 32-bit beats, and write beats with some but not all of
      their strobes (a beat without strobes writes nothing and is no error).

    Latency: a word is on AXI4-Lite in the cycle after its address (write: and its data) was taken.

    Parameters:
        base, size: window of addresses in bytes; `base` is a multiple of `size`, which is a power of two.

    Ports:
        gp_*: AXI3 slave.
        axil: AXI4-Lite master.
    """

    def __init__(self, base: int, size: int) -> None:
        if size < 4 or size & (size - 1) or base % size:
            raise ValueError(f"base must be a multiple of a power of two, not {base:#x} of {size:#x}")
        self.base, self.size = base, size
        self.bursts: dict[
            str, tuple[Signal, Signal, Signal]
        ] = {}  # for `verification.formal.boards`, as `asked` and `beat`
        super().__init__({**flipped(axi3_master("gp_", 32, GP_ID_BITS)), "axil": Out(Axi4Lite())})

    def _begin(self, m: Module, channel: str) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """Takes a burst of channel "ar" or "aw" while none is under way. Returns (active, beats after this one,
        address, address of the next beat, response of a burst that is refused)."""
        active, left = Signal(name=f"{channel}_active"), Signal(4, name=f"{channel}_left")
        address, refused = Signal(ADDRESS_BITS, name=f"{channel}_now"), Signal(2, name=f"{channel}_refused")
        valid, ready, id_, addr, length, size, burst = (
            getattr(self, f"gp_{channel}{n}") for n in ("valid", "ready", "id", "addr", "len", "size", "burst")
        )
        low = (self.size - 1).bit_length()
        wrong: Value = (burst != INCR) & (burst != FIXED)
        if channel == "aw":
            wrong |= size != WORD_SIZE
        fixed, step = Signal(name=f"{channel}_fixed"), Signal(2, name=f"{channel}_size")
        m.d.comb += ready.eq(~active)
        with m.If(valid & ready):
            m.d.sync += [
                active.eq(1),
                left.eq(length),
                address.eq(addr),
                fixed.eq(burst == FIXED),
                step.eq(size),
                refused.eq(Mux(addr[low:] != self.base >> low, DECERR, Mux(wrong, SLVERR, OKAY))),
                getattr(self, "gp_rid" if channel == "ar" else "gp_bid").eq(id_),
            ]
        self.bursts[channel] = active, left, refused
        next_address = Signal(ADDRESS_BITS, name=f"{channel}_next")
        m.d.comb += next_address.eq(Mux(fixed, address, ((address >> step) + 1) << step))
        return active, left, address, next_address, refused

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._reads(m)
        self._writes(m)
        m.d.comb += [self.axil.ar.prot.eq(0), self.axil.aw.prot.eq(0)]
        unread(m, self.gp_arcache, self.gp_arprot, self.gp_awcache, self.gp_awprot)
        unread(m, self.gp_wid, self.gp_wlast)  # one burst at a time, whose beats are counted
        return m

    def _reads(self, m: Module) -> None:
        active, left, address, next_address, refused = self._begin(m, "ar")
        asked, taken = Signal(), Signal()
        self.asked = asked
        m.d.comb += [
            self.axil.ar.valid.eq(active & (refused == OKAY) & ~asked),
            self.axil.ar.addr.eq(address),
            self.gp_rvalid.eq(active & ((refused != OKAY) | (asked & self.axil.r.valid))),
            self.gp_rdata.eq(self.axil.r.data),
            self.gp_rresp.eq(Mux(refused != OKAY, refused, self.axil.r.resp)),
            self.gp_rlast.eq(left == 0),
            self.axil.r.ready.eq(asked & self.gp_rready),
            taken.eq(self.gp_rvalid & self.gp_rready),
        ]
        with m.If(self.axil.ar.valid & self.axil.ar.ready):
            m.d.sync += asked.eq(1)
        with m.If(taken):
            m.d.sync += [asked.eq(0), left.eq(left - 1), address.eq(next_address), active.eq(left != 0)]

    def _writes(self, m: Module) -> None:
        active, left, address, next_address, refused = self._begin(m, "aw")
        # A beat is held while AXI4-Lite takes its address and its word, in any order, and answers.
        held, address_sent, word_sent, answering = Signal(), Signal(), Signal(), Signal()
        self.beat = held, address_sent, word_sent, answering
        response, worst = Signal(2), Signal(2)
        done = Signal()
        m.d.comb += [
            self.axil.aw.valid.eq(held & ~address_sent),
            self.axil.aw.addr.eq(address),
            self.axil.w.valid.eq(held & ~word_sent),
            self.axil.w.strb.eq(0b1111),
            self.axil.b.ready.eq(held & address_sent & word_sent),
            self.gp_wready.eq(active & ~held & ~answering),
            self.gp_bvalid.eq(answering),
            self.gp_bresp.eq(response),
        ]
        with m.If(self.axil.aw.valid & self.axil.aw.ready):
            m.d.sync += address_sent.eq(1)
        with m.If(self.axil.w.valid & self.axil.w.ready):
            m.d.sync += word_sent.eq(1)
        with m.If(self.axil.b.valid & self.axil.b.ready):
            m.d.sync += [held.eq(0), address_sent.eq(0), word_sent.eq(0)]
            m.d.comb += [done.eq(1), worst.eq(self.axil.b.resp)]
        with m.If(self.gp_wvalid & self.gp_wready):
            with m.If((refused == OKAY) & self.gp_wstrb.all()):
                m.d.sync += [held.eq(1), self.axil.w.data.eq(self.gp_wdata)]
            with m.Else():
                m.d.comb += [done.eq(1), worst.eq(Mux(self.gp_wstrb.any(), SLVERR, OKAY))]
        with m.If(self.gp_awvalid & self.gp_awready):
            m.d.sync += response.eq(OKAY)
        with m.If(done):
            m.d.sync += [left.eq(left - 1), address.eq(next_address)]
            m.d.sync += response.eq(Mux(refused != OKAY, refused, response | worst))
            with m.If(left == 0):
                m.d.sync += answering.eq(1)
        with m.If(self.gp_bvalid & self.gp_bready):
            m.d.sync += [answering.eq(0), active.eq(0)]


class BurstSplitter(wiring.Component):
    """Connects the NPU's AXI4 master to an HP port: bursts become at most 16 beats long, and one response again.

    Latency: an address is out one cycle after it was taken; then one burst of 16 beats per cycle. Beats and responses
    pass in the same cycle. Write beats do not wait for their address.

    Parameters:
        config: configuration of the NPU, with a data bus of 64 bits and addresses of 32.

    Ports:
        axi: AXI4 slave.
        hp_*: AXI3 master.
    """

    def __init__(self, config: NpuConfig) -> None:
        if config.axi_data_bits != HP_DATA_BITS or config.axi_address_bits != ADDRESS_BITS:
            raise ValueError(
                f"an HP port takes axi_data_bits = {HP_DATA_BITS} and axi_address_bits = {ADDRESS_BITS}; "
                f"{config.name} has {config.axi_data_bits} and {config.axi_address_bits}"
            )
        self.config = config
        self.left: dict[str, Signal] = {}  # for `verification.formal.boards`
        super().__init__({"axi": In(Axi4(config)), **axi3_master("hp_", HP_DATA_BITS, HP_ID_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pieces = -(-self.config.burst_beats // MAX_BEATS)
        read_ends = self._addresses(m, "ar", self.config.read_outstanding * pieces)
        write_ends = self._addresses(m, "aw", self.config.write_outstanding * pieces)

        m.d.comb += [
            self.axi.r.valid.eq(self.hp_rvalid),
            self.hp_rready.eq(self.axi.r.ready),
            self.axi.r.data.eq(self.hp_rdata),
            self.axi.r.resp.eq(self.hp_rresp),
            self.axi.r.last.eq(self.hp_rlast & read_ends.o_payload),
            read_ends.o_ready.eq(self.hp_rvalid & self.axi.r.ready & self.hp_rlast),
        ]

        beat = self.beat = Signal(range(MAX_BEATS))  # of a piece; for `verification.formal.boards`
        m.d.comb += [
            self.hp_wvalid.eq(self.axi.w.valid),
            self.axi.w.ready.eq(self.hp_wready),
            self.hp_wdata.eq(self.axi.w.data),
            self.hp_wstrb.eq(self.axi.w.strb),
            self.hp_wlast.eq(self.axi.w.last | (beat == MAX_BEATS - 1)),
        ]
        with m.If(self.hp_wvalid & self.hp_wready):
            m.d.sync += beat.eq(Mux(self.axi.w.last, 0, beat + 1))

        # DECERR and SLVERR differ in one bit; their union is an error as well. EXOKAY cannot come.
        worst, end = Signal(2), write_ends.o_payload
        self.worst = worst  # for `verification.formal.boards`
        m.d.comb += [
            self.axi.b.valid.eq(self.hp_bvalid & end),
            self.hp_bready.eq(self.axi.b.ready | ~end),
            self.axi.b.resp.eq(self.hp_bresp | worst),
            write_ends.o_ready.eq(self.hp_bvalid & self.hp_bready),
        ]
        with m.If(self.hp_bvalid & self.hp_bready):
            m.d.sync += worst.eq(Mux(end, OKAY, self.hp_bresp | worst))
        # There is one ID; bursts are INCR, of full-width beats. A piece is in flight where a response comes.
        ids = (self.axi.r.id, self.axi.b.id, self.hp_arid, self.hp_awid, self.hp_wid)
        m.d.comb += [port.eq(0) for port in ids]
        unread(m, self.hp_bid, self.hp_rid, read_ends.o_valid, write_ends.o_valid)
        for channel in (self.axi.ar, self.axi.aw):
            unread(m, channel.burst, channel.size, channel.id)
        self.ends = {"ar": read_ends, "aw": write_ends}  # for `verification.formal.boards`
        return m

    def _addresses(self, m: Module, channel: str, pieces: int) -> Queue:
        """Splits the bursts of channel "ar" or "aw". Returns the queue of flags: the piece in flight ends its burst."""
        m.submodules[f"{channel}_ends"] = ends = Queue(1, pieces)

        def npu(name: str) -> Signal:
            return getattr(getattr(self.axi, channel), name)

        def hp(name: str) -> Signal:
            return getattr(self, f"hp_{channel}{name}")

        left = self.left[channel] = Signal(9, name=f"{channel}_left")  # beats
        end, sent = Signal(name=f"{channel}_end"), Signal(name=f"{channel}_sent")
        m.d.comb += [
            end.eq(left <= MAX_BEATS),
            hp("valid").eq((left != 0) & ends.i_ready),
            hp("len").eq(Mux(end, left - 1, MAX_BEATS - 1)),
            hp("size").eq((HP_DATA_BITS // 8 - 1).bit_length()),
            hp("burst").eq(INCR),
            sent.eq(hp("valid") & hp("ready")),
            ends.i_valid.eq(sent),
            ends.i_payload.eq(end),
            npu("ready").eq((left == 0) | (sent & end)),
        ]
        with m.If(sent):
            m.d.sync += [left.eq(Mux(end, C(0, 9), left - MAX_BEATS)), hp("addr").eq(hp("addr") + MAX_BEATS * 8)]
        with m.If(npu("valid") & npu("ready")):
            m.d.sync += [left.eq(npu("len") + 1), *(hp(n).eq(npu(n)) for n in ("addr", "cache", "prot"))]
        return ends
