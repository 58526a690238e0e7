"""The device-tree overlay by which Linux loads a bitstream and finds the NPU and its memory."""

from __future__ import annotations

from tilewright.fpga.zynq.processing_systems import WINDOW, ProcessingSystem

OVERLAY = "npu.dts"
#: Name of the UIO device: `board://uio:npu0`.
UIO_NAME = "npu0"
BUFFER_NAME = "udmabuf0"
BUFFER_BYTES = 64 << 20


def overlay(system: ProcessingSystem, title: str, clock_mhz: float, image: str) -> str:
    """Source of the overlay; `dtc -@ -I dts -O dtb -o npu.dtbo npu.dts` compiles it.

    Args:
        title: title of the board.
        clock_mhz: frequency of the fabric clock, which is set before the NPU's driver starts.
        image: file in /lib/firmware with the bitstream.
    """
    s = system
    clock = f"<&{s.clock_node} {s.clock_id}>"

    def cells(value: int) -> str:
        return f"0x0 {value:#x}" if s.cells == 2 else f"{value:#x}"

    return f"""\
/* Tilewright NPU on {title}. Generated: change the configuration, not this file. */
/dts-v1/;
/plugin/;

&{s.region_node} {{
	firmware-name = "{image}";
}};

&{s.bus_node} {{
	#address-cells = <{s.cells}>;
	#size-cells = <{s.cells}>;

	npu_clock: npu-clock {{
		compatible = "xlnx,fclk";
		clocks = {clock};
		clock-output-names = "npu_clock";
		#clock-cells = <0>;
		assigned-clocks = {clock};
		assigned-clock-rates = <{round(clock_mhz * 1e6)}>;
	}};

	/* generic-uio is bound by the boot argument uio_pdrv_genirq.of_id=generic-uio. */
	npu: {UIO_NAME}@{s.registers:x} {{
		compatible = "generic-uio";
		reg = <{cells(s.registers)} {cells(WINDOW)}>;
		interrupt-parent = <&{s.interrupt_node}>;
		interrupts = <0 {s.spi} 4>;
		clocks = {clock};
	}};

	/* From the kernel's contiguous memory area (cma=); needs the module u-dma-buf. */
	npu_memory: npu-memory {{
		compatible = "ikwzm,u-dma-buf";
		device-name = "{BUFFER_NAME}";
		size = <{BUFFER_BYTES:#x}>;
	}};
}};
"""
