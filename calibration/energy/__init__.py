"""Calibration of the energy model `tilewright.energy` on toggles of synthesised gates.

    python -m calibration.energy                   errors of the model, point by point
    python -m calibration.energy tiny              what each event costs on a machine
    python -m calibration.energy --truth           synthesise, simulate, fit, write (make energy-truth)
    python -m calibration.energy --fit             the fit alone, from the truth in osu018.json
    python -m calibration.energy --check           whether the RTL still makes the designs that were measured

`liberty`, `netlist`, `simulation`, `power` and `truth` measure the programs of `points`; `fit` fits the coefficients of
`tilewright.energy.model` to these measurements, which are called the truth.
"""
