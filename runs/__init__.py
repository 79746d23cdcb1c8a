"""What a run is and what it leaves behind."""
