"""The technique of a result: its declaration, the recorded engine configuration, and the quality gate."""
