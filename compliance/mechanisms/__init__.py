"""The technique of a result: its declaration, the engine's record of it, and the quality gate."""
