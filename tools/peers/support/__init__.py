"""Programs, engines, models and runs for the parts of tools.peers."""
