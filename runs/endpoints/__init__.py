"""Run folders of the MLPerf Endpoints client (mlcommons/endpoints): what is in them, read and not judged."""
