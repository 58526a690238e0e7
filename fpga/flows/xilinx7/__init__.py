"""Zynq-7000 by tools of the system or of Debian."""
