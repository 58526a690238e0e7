"""Programs for boards that need no host: `tilewright.fpga.standalone` says what they run on."""
