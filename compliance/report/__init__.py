"""HTML pages of runs and trees, with SVG pictures, and the verification document."""
