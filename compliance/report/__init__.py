"""HTML pages of runs and trees, with pictures as SVG; and the verification document."""
