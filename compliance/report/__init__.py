"""HTML pages of legs and trees, with pictures as SVG; and the verification document."""
