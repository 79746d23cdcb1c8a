"""What technique a result was made with: its declaration, what the engine's record says of it, and the quality gate."""
