"""The query sample library: dataset formats, the official prompt, the bundled dataset and default model."""
