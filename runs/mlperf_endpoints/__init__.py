"""Run folders of the MLPerf Endpoints client (mlcommons/endpoints): their files and fields, without rules."""
