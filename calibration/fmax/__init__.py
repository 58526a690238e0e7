"""Calibration of the clock model `tilewright.fpga.fmax`, on placements by nextpnr.

python -m calibration.fmax                  place the calibration points, fit, write fpga/fmax/FAMILY.json
python -m calibration.fmax --fit            the fit alone, from the placements in FAMILY.json
python -m calibration.fmax --family xc7     build bitstreams of a family that has the delays of ECP5, and fit
"""
