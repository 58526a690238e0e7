"""Benchmarks for the development of Tilewright.

python -m calibration.benchmarks.network_cycles     cycles of the zoo's networks beside bounds and targets
python -m calibration.benchmarks.prices tiny        cells and cycles that options of a machine cost
python -m calibration.benchmarks.report_time        CPU seconds of a sweep's report
python -m calibration.benchmarks.costs_of_tests     CPU seconds of the tests by folder, and the dearest
"""
