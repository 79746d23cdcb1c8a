"""Run folders of the MLPerf Endpoints client, judged: the load that was asked for, its audit, the rules."""
