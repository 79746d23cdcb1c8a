"""What runs, what ended and how, and what was measured: read from files, never from a terminal's output."""
