"""Calibration of the area model `tilewright.fpga.area`, on cells that Yosys counts.

python -m calibration.area --family ecp5    synthesise the calibration points, fit, write fpga/area/FAMILY.json
"""
