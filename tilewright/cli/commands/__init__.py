"""The commands: each file is one command or subcommand, with its options, its tables and its JSON."""
