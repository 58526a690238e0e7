"""Programs for boards that need no host: `fpga.standalone` says what they run on."""
