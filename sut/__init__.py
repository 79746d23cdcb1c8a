"""The system under test: LoadGen's callbacks on one side, an engine on the other."""
