"""The processing systems of the two generations of Zynq: names of ports, options and nodes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.isa.registers import REGISTER_SPACE

#: Linux maps pages; the window of the registers is at least one.
WINDOW = max(4096, REGISTER_SPACE)


@dataclass(frozen=True)
class ProcessingSystem:
    """Properties that differ between the two generations of Zynq.

    Attributes:
        cell: IP of the processing system in the vendor's tool.
        control, memory: names of the GP and HP ports.
        control_clock, memory_clock, clock, reset, interrupt: further pins.
        options: options of the IP besides the clock; {memory_bits} is the width of the memory port.
        clock_option: option of the clock in MHz.
        memory_bits: width of the HP port after a reset of the processing system.
        segments: address segments of the DRAM behind the HP port in the block design: interface, name.
        registers: base address of the NPU's registers, in the window of the GP port.
        address_bits: address bits of the memory port.
        spi: number in the device tree of the first fabric interrupt.
        interrupt_node: label of the interrupt controller in the device tree.
        clock_node, clock_id: node and number of the fabric clock in the device tree.
        cells: #address-cells and #size-cells of its bus in the device tree.
        bus_node, region_node: labels in the device tree.
    """

    cell: str
    control: str
    memory: str
    control_clock: str
    memory_clock: str
    clock: str
    reset: str
    interrupt: str
    options: tuple[tuple[str, str], ...]
    clock_option: str
    memory_bits: int
    segments: tuple[str, str]
    registers: int
    address_bits: int
    spi: int
    interrupt_node: str
    clock_node: str
    clock_id: int
    cells: int
    bus_node: str
    region_node: str


ZYNQ7 = ProcessingSystem(
    cell="processing_system7",
    control="M_AXI_GP0",
    memory="S_AXI_HP0",
    control_clock="M_AXI_GP0_ACLK",
    memory_clock="S_AXI_HP0_ACLK",
    clock="FCLK_CLK0",
    reset="FCLK_RESET0_N",
    interrupt="IRQ_F2P",
    options=(
        ("PCW_USE_M_AXI_GP0", "1"),
        ("PCW_USE_S_AXI_HP0", "1"),
        ("PCW_S_AXI_HP0_DATA_WIDTH", "{memory_bits}"),
        ("PCW_USE_FABRIC_INTERRUPT", "1"),
        ("PCW_IRQ_F2P_INTR", "1"),
    ),
    clock_option="PCW_FPGA0_PERIPHERAL_FREQMHZ",
    memory_bits=64,
    segments=("S_AXI_HP0", "HP0_DDR_LOWOCM"),
    registers=0x43C0_0000,
    address_bits=32,
    spi=29,
    interrupt_node="intc",
    clock_node="clkc",
    clock_id=15,
    cells=1,
    bus_node="amba",
    region_node="fpga_full",
)
ZYNQMP = ProcessingSystem(
    cell="zynq_ultra_ps_e",
    control="M_AXI_HPM0_FPD",
    memory="S_AXI_HP0_FPD",
    control_clock="maxihpm0_fpd_aclk",
    memory_clock="saxihp0_fpd_aclk",
    clock="pl_clk0",
    reset="pl_resetn0",
    interrupt="pl_ps_irq0",
    options=(
        ("PSU__USE__M_AXI_GP0", "1"),
        ("PSU__USE__M_AXI_GP1", "0"),
        ("PSU__USE__M_AXI_GP2", "0"),
        ("PSU__USE__S_AXI_GP2", "1"),
        ("PSU__SAXIGP2__DATA_WIDTH", "{memory_bits}"),
        ("PSU__USE__IRQ0", "1"),
    ),
    clock_option="PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ",
    memory_bits=128,
    segments=("SAXIGP2", "HP0_DDR_LOW"),
    registers=0xA000_0000,
    address_bits=40,
    spi=89,
    interrupt_node="gic",
    clock_node="zynqmp_clk",
    clock_id=71,
    cells=2,
    bus_node="amba",
    region_node="fpga_full",
)
