"""What all commands share: how one is found, what it takes, what it answers. A command is a file in `commands/`."""
