"""The query sample library: data set formats, the official prompt, the bundled data set and default model."""
