"""The parts that all commands share: dispatch, options and output. Each command is a file in `commands/`."""
