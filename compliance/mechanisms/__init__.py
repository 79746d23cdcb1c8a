"""The technique of a result: its declaration, its recorded engine configuration, and the quality gate."""
