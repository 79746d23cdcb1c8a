"""HTML pages of runs and trees, with SVG charts, and the verification document."""
