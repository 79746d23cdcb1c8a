"""Pre-upload checks of a submission tree."""
