"""The laboratory of figures: what fits the product's models to measurements, and benchmarks for its development. It is
part of a checkout only, and imports the product; the product imports nothing of it.

    python -m calibration       whether the RTL still makes the designs that were measured

    area/           cells of calibration machines by Yosys, and the fit of `tilewright.fpga.area`
    fmax/           clocks of calibration machines by nextpnr, and the fit of `tilewright.fpga.fmax`
    energy/         toggles of synthesised gates, and the fit of `tilewright.energy`
    benchmarks/     cycles of networks beside targets, costs of machine options, CPU time of the tests
    searches/       searches of sweeps beside a space whose points were all compiled
"""
