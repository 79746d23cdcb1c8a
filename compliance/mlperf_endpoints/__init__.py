"""Rules on run directories of the MLPerf Endpoints client: their files, load, audit, and the rules of the round."""
