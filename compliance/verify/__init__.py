"""Verifying results from the files alone: run directories of ours, or the logs of any LoadGen run of this benchmark."""
